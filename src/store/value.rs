//! Values: a record as JSON, with members that are too large for the database moved to bodies.
//!
//! This module owns the form `{"record": …, "bodies": {"/turn/prompt": {"sha256": …}}}`. A moved member is `null` in
//! the record, and its position is a JSON pointer. Only members that the caller declares as structures are split, so
//! that JSON that the daemon does not interpret stays the same byte for byte. This module does not know which record a
//! value contains.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::body::{Bodies, BodyRef};
use super::error::{LostPart, StoreError};

/// The largest value in the database, in bytes, unless its bodies could not be written. sled moves a page above its own limit to
/// a file that it never syncs, and a page holds up to 17 values.
pub const VALUE_LIMIT_BYTES: usize = 8 << 10;

/// The largest value of a change that cannot be refused, in bytes, if its bodies cannot be written. A larger one would take the
/// reserve of other turns.
const UNMOVED_LIMIT_BYTES: usize = 64 << 10;

/// The maximum length of a reference to a body in a value, in bytes.
const REFERENCE_BYTES: usize = 160;

/// How many members of one structure may move to separate files. The rest moves as one, because each reference takes
/// space too.
const INNER_BODIES_LIMIT: usize = 16;

/// The smallest member that is worth a file, in bytes.
const SMALLEST_BODY_BYTES: usize = 512;

/// A record as database and journal hold it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredValue {
    pub(super) record: Box<RawValue>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) bodies: BTreeMap<String, BodyRef>,
}

type Members = BTreeMap<String, Box<RawValue>>;

/// A member taken out of a structure.
struct ExtractedMember {
    name: String,
    content: Box<RawValue>,
    /// The structure with `null` in place of the member.
    rest: Box<RawValue>,
}

impl StoredValue {
    /// Encodes a record. Without `bodies` (in memory), nothing is too large.
    ///
    /// `structures` names the members whose own members may move one by one. `must_fit`: whether members stay in the value if
    /// their bodies cannot be written, because the change that they belong to cannot be refused. Such a value is at most
    /// `UNMOVED_LIMIT_BYTES` large.
    pub(super) fn encode<T: Serialize>(
        kind: &'static str,
        record: &T,
        structures: &[&str],
        bodies: Option<&Bodies>,
        must_fit: bool,
    ) -> Result<Self, StoreError> {
        let mut value = Self {
            record: serde_json::value::to_raw_value(record).map_err(StoreError::unwritable(kind))?,
            bodies: BTreeMap::new(),
        };
        if let Some(bodies) = bodies
            && value.size() > VALUE_LIMIT_BYTES
        {
            match value.shrink(kind, structures, bodies) {
                Err(_) if must_fit && value.size() <= UNMOVED_LIMIT_BYTES => {}
                shrunk => shrunk?,
            }
        }
        Ok(value)
    }

    /// Parses a value from the database.
    pub(super) fn from_bytes(what: &'static str, bytes: &[u8]) -> Result<Self, StoreError> {
        serde_json::from_slice(bytes).map_err(|_| StoreError::DamagedValue { what })
    }

    /// Parses the members of a value from the database that never move to bodies. They were validated before they were
    /// stored.
    pub(super) fn stored_header<T: DeserializeOwned>(
        what: &'static str,
        bytes: &[u8],
    ) -> Result<T, StoreError> {
        let value = Self::from_bytes(what, bytes)?;
        serde_json::from_str(value.record.get()).map_err(|_| StoreError::DamagedValue { what })
    }

    /// Encodes the value for the database.
    pub(super) fn to_bytes(&self, what: &'static str) -> Result<Vec<u8>, StoreError> {
        serde_json::to_vec(self).map_err(StoreError::unwritable(what))
    }

    /// Parses the record, including the members that moved to bodies.
    pub(super) fn read<T: DeserializeOwned>(
        &self,
        kind: &'static str,
        bodies: Option<&Bodies>,
    ) -> Result<T, StoreError> {
        if self.bodies.is_empty() {
            return serde_json::from_str(self.record.get()).map_err(StoreError::unreadable(kind));
        }
        let (members, lost) = self.members(kind, bodies)?;
        match lost.into_iter().next() {
            Some(lost) => Err(StoreError::LostBody(lost)),
            None => parse(kind, &members),
        }
    }

    /// As [`StoredValue::read`], without the parts whose bodies cannot be read. A structure that lacks a part is omitted
    /// entirely, because its meaning could change, unless it is one of `divisible`.
    pub(super) fn salvage<T: DeserializeOwned>(
        &self,
        kind: &'static str,
        divisible: &[&str],
        bodies: Option<&Bodies>,
    ) -> Result<(T, Vec<LostPart>), StoreError> {
        if self.bodies.is_empty() {
            return Ok((self.read(kind, bodies)?, Vec::new()));
        }
        let (mut members, mut lost) = self.members(kind, bodies)?;
        for part in &mut lost {
            if let Some((outer, _)) = part.member.split_once('.')
                && !divisible.contains(&outer)
            {
                members.remove(outer);
                part.member = outer.to_owned();
            }
        }
        match (parse(kind, &members), lost.first()) {
            (Ok(record), _) => Ok((record, lost)),
            (Err(_), Some(first)) => Err(StoreError::LostBody(first.clone())),
            (Err(error), None) => Err(error),
        }
    }

    /// Returns the members of the record, including those that moved to bodies. Omits the parts whose bodies cannot be
    /// read, and returns them separately.
    fn members(
        &self,
        kind: &'static str,
        bodies: Option<&Bodies>,
    ) -> Result<(Members, Vec<LostPart>), StoreError> {
        let mut members: Members =
            serde_json::from_str(self.record.get()).map_err(StoreError::unreadable(kind))?;
        let mut lost = Vec::new();
        let Some(folder) = bodies else {
            return Ok((members, lost));
        };
        for (pointer, body) in &self.bodies {
            let member = pointer.trim_start_matches('/').replace('/', ".");
            let content = match folder.get(body, &member) {
                Ok(content) => Some(RawValue::from_string(content).map_err(StoreError::unreadable(kind))?),
                Err(part) => {
                    lost.push(part);
                    None
                }
            };
            match member.split_once('.') {
                None => put(&mut members, member, content),
                Some((name, inner)) => {
                    let outer = members.get(name).map_or("{}", |outer| outer.get());
                    let mut inside: Members =
                        serde_json::from_str(outer).map_err(StoreError::unreadable(kind))?;
                    put(&mut inside, inner.to_owned(), content);
                    members.insert(name.to_owned(), raw(kind, &inside)?);
                }
            }
        }
        Ok((members, lost))
    }

    /// Returns the parts whose bodies cannot be read.
    pub(super) fn lost_parts(
        &self,
        what: &'static str,
        bodies: &Bodies,
    ) -> Result<Vec<LostPart>, StoreError> {
        match self.bodies.is_empty() {
            true => Ok(Vec::new()),
            false => Ok(self.members(what, Some(bodies))?.1),
        }
    }

    /// Parses some members of the record that never move because they are always small.
    pub(super) fn read_header<'a, T: Deserialize<'a>>(&'a self, what: &'static str) -> Result<T, StoreError> {
        serde_json::from_str(self.record.get()).map_err(StoreError::unreadable(what))
    }

    /// Whether a member, or a part of it, moved to a body.
    pub(super) fn has_body_in(&self, member: &str) -> bool {
        self.bodies
            .keys()
            .any(|pointer| pointer.split('/').nth(1) == Some(member))
    }

    fn size(&self) -> usize {
        self.record.get().len() + (self.bodies.len() + 1) * REFERENCE_BYTES
    }

    /// Moves the largest members to bodies until the rest fits.
    fn shrink(&mut self, kind: &'static str, structures: &[&str], bodies: &Bodies) -> Result<(), StoreError> {
        let mut members: Members =
            serde_json::from_str(self.record.get()).map_err(StoreError::unwritable(kind))?;
        while self.size() > VALUE_LIMIT_BYTES {
            let Some((name, largest)) = take_largest(&mut members) else {
                return Err(self.too_large(kind));
            };
            if largest.get().len() < SMALLEST_BODY_BYTES {
                return Err(self.too_large(kind));
            }
            let mut remains = RawValue::NULL.to_owned();
            let (pointer, content) = match self.largest_inside(kind, &name, &largest, structures)? {
                Some(extracted) => {
                    remains = extracted.rest;
                    (format!("/{name}/{}", extracted.name), extracted.content)
                }
                None => (format!("/{name}"), largest),
            };
            let body = bodies.put(content.get().as_bytes())?;
            self.bodies.insert(pointer, body);
            members.insert(name, remains);
            self.record = raw(kind, &members)?;
        }
        Ok(())
    }

    /// Returns the largest member of a structure, if it is worth a file, and the structure without it.
    fn largest_inside(
        &self,
        kind: &'static str,
        name: &str,
        structure: &RawValue,
        structures: &[&str],
    ) -> Result<Option<ExtractedMember>, StoreError> {
        let moved = self.bodies.keys().filter(|pointer| {
            let rest = pointer.strip_prefix('/');
            rest.and_then(|rest| rest.strip_prefix(name))
                .is_some_and(|rest| rest.starts_with('/'))
        });
        if !structures.contains(&name) || moved.count() >= INNER_BODIES_LIMIT {
            return Ok(None);
        }
        let mut inside: Members =
            serde_json::from_str(structure.get()).map_err(StoreError::unwritable(kind))?;
        let Some((inner, content)) = take_largest(&mut inside) else {
            return Ok(None);
        };
        if content.get().len() < SMALLEST_BODY_BYTES {
            return Ok(None);
        }
        inside.insert(inner.clone(), RawValue::NULL.to_owned());
        Ok(Some(ExtractedMember {
            name: inner,
            content,
            rest: raw(kind, &inside)?,
        }))
    }

    fn too_large(&self, what: &'static str) -> StoreError {
        StoreError::TooLarge {
            what,
            bytes: self.size(),
            limit_bytes: VALUE_LIMIT_BYTES,
        }
    }
}

/// Puts a member in its place, or removes it if it is lost.
fn put(members: &mut Members, name: String, content: Option<Box<RawValue>>) {
    match content {
        Some(content) => members.insert(name, content),
        None => members.remove(&name),
    };
}

fn parse<T: DeserializeOwned>(what: &'static str, members: &Members) -> Result<T, StoreError> {
    let whole = serde_json::to_string(members).map_err(StoreError::unwritable(what))?;
    serde_json::from_str(&whole).map_err(StoreError::unreadable(what))
}

fn take_largest(members: &mut Members) -> Option<(String, Box<RawValue>)> {
    let name = members
        .iter()
        .max_by_key(|(_, value)| value.get().len())
        .map(|(name, _)| name.clone())?;
    members.remove_entry(&name)
}

fn raw<T: Serialize>(what: &'static str, value: &T) -> Result<Box<RawValue>, StoreError> {
    serde_json::value::to_raw_value(value).map_err(StoreError::unwritable(what))
}

#[cfg(test)]
mod tests;
