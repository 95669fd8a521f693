//! A parameter object that keeps unknown members.
//!
//! Members are raw text in their original order, so a client's unknown members and numbers of any size reach the
//! agent as written. Only members that are set here are replaced. Pure.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::agent::message::{CallError, MethodName};

/// The member for extensions of the protocol.
const META: &str = "_meta";

/// How deep `_meta` objects are merged. Below that, the client's value is kept as a whole.
const MAX_MERGE_DEPTH: usize = 16;

/// The parameters of a method; see the module's documentation.
#[derive(Debug, Clone)]
pub struct Params {
    method: &'static str,
    members: Members,
}

/// The members of one object, in order. The last one with a name counts, as in a scan.
#[derive(Debug, Clone, Default)]
struct Members(Vec<(String, Box<RawValue>)>);

impl Params {
    /// Creates an empty object for this method.
    #[must_use]
    pub fn new(method: &'static str) -> Self {
        Self {
            method,
            members: Members::default(),
        }
    }

    /// Creates a copy of a client's object, or an empty object.
    ///
    /// # Errors
    ///
    /// [`CallError::BadParams`] if it is not an object.
    pub fn from_client(method: &'static str, params: Option<&RawValue>) -> Result<Self, CallError> {
        let mut new = Self::new(method);
        if let Some(params) = params {
            new.members = serde_json::from_str(params.get()).map_err(|error| new.bad(&error))?;
        }
        Ok(new)
    }

    /// Returns the method.
    #[must_use]
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// Sets a member.
    ///
    /// # Errors
    ///
    /// [`CallError::BadParams`] if the value cannot be encoded, such as a path that is not UTF-8.
    pub fn set(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), CallError> {
        let value = serde_json::value::to_raw_value(value).map_err(|error| self.bad(&error))?;
        self.set_raw(name, value);
        Ok(())
    }

    /// Sets a member if it is absent.
    ///
    /// # Errors
    ///
    /// [`CallError::BadParams`] if the value cannot be encoded.
    pub fn set_if_absent(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), CallError> {
        if self.members.get(name).is_none() {
            self.set(name, value)
        } else {
            Ok(())
        }
    }

    /// Sets a member to a raw value.
    pub fn set_raw(&mut self, name: &str, value: Box<RawValue>) {
        self.members.set(name, value);
    }

    /// Merges objects into `_meta`. The client's values win.
    ///
    /// # Errors
    ///
    /// [`CallError::BadParams`] if a value cannot be encoded.
    pub fn merge_meta(&mut self, meta: &Map<String, Value>) -> Result<(), CallError> {
        if meta.is_empty() {
            return Ok(());
        }
        let present = self.members.get(META).filter(|present| present.get() != "null");
        let merged = merge(present, meta, 0).map_err(|error| self.bad(&error))?;
        self.set_raw(META, merged);
        Ok(())
    }

    /// Encodes the object.
    ///
    /// # Errors
    ///
    /// [`CallError::BadParams`] if it cannot be encoded.
    pub fn build(&self) -> Result<Box<RawValue>, CallError> {
        self.members.build().map_err(|error| self.bad(&error))
    }

    fn bad(&self, error: &serde_json::Error) -> CallError {
        CallError::BadParams {
            method: MethodName::known(self.method),
            detail: error.to_string(),
        }
    }
}

impl Members {
    fn get(&self, name: &str) -> Option<&RawValue> {
        self.0
            .iter()
            .rev()
            .find(|(known, _)| known == name)
            .map(|(_, value)| &**value)
    }

    /// Replaces all members with this name by one, at the position of the first.
    fn set(&mut self, name: &str, value: Box<RawValue>) {
        let place = self.0.iter().position(|(known, _)| known == name);
        self.0.retain(|(known, _)| known != name);
        self.0
            .insert(place.unwrap_or(self.0.len()), (name.to_owned(), value));
    }

    fn build(&self) -> serde_json::Result<Box<RawValue>> {
        let mut text = String::from("{");
        for (index, (name, value)) in self.0.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            text.push_str(&serde_json::to_string(name)?);
            text.push(':');
            text.push_str(value.get());
        }
        text.push('}');
        RawValue::from_string(text)
    }
}

/// Adds the members of `added` that `present` lacks.
fn merge(
    present: Option<&RawValue>,
    added: &Map<String, Value>,
    depth: usize,
) -> serde_json::Result<Box<RawValue>> {
    let Some(present) = present else {
        return serde_json::value::to_raw_value(added);
    };
    let is_object = present.get().starts_with('{');
    if !is_object || depth == MAX_MERGE_DEPTH {
        return Ok(present.to_owned());
    }
    let mut members: Members = serde_json::from_str(present.get())?;
    for (name, value) in added {
        let merged = match (members.get(name), value) {
            (None, value) => serde_json::value::to_raw_value(value)?,
            (Some(inner), Value::Object(value)) => merge(Some(inner), value, depth + 1)?,
            (Some(_), _) => continue,
        };
        members.set(name, merged);
    }
    members.build()
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Members::default();
                while let Some(member) = map.next_entry::<String, Box<RawValue>>()? {
                    members.0.push(member);
                }
                Ok(members)
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}
