//! JSON objects as ordered lists of raw members. Pure.

use bridge_protocol::raw::RawJson;
use indexmap::IndexMap;

/// The members of an object.
pub type Members = IndexMap<String, RawJson>;

/// Returns the object with these members. `None` if there are no members.
#[must_use]
pub fn to_object(members: &Members) -> Option<RawJson> {
    match members.is_empty() {
        true => None,
        false => RawJson::from_value(members).ok(),
    }
}

/// Returns the object with this member set, and all other members unchanged. `None` if it is not an object.
#[must_use]
pub fn with_member(object: &str, name: &str, value: RawJson) -> Option<RawJson> {
    let mut members: Members = serde_json::from_str(object).ok()?;
    members.insert(name.to_owned(), value);
    RawJson::from_value(&members).ok()
}
