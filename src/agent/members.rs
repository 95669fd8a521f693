//! Objects as their members, raw and in their order. Pure.

use bridge_protocol::raw::RawJson;
use indexmap::IndexMap;

/// The members of an object.
pub type Members = IndexMap<String, RawJson>;

/// The object with these members; none if there are none.
#[must_use]
pub fn object_of(members: &Members) -> Option<RawJson> {
    match members.is_empty() {
        true => None,
        false => RawJson::from_value(members).ok(),
    }
}

/// The object with another value of this member, and every other member as it came; none if it is not an object.
#[must_use]
pub fn with_member(object: &str, name: &str, value: RawJson) -> Option<RawJson> {
    let mut members: Members = serde_json::from_str(object).ok()?;
    members.insert(name.to_owned(), value);
    RawJson::from_value(&members).ok()
}
