//! An object of parameters that keeps what it is given.
//!
//! Members are raw text in the order in which they came, so a client's unknown members and numbers of any size reach
//! the agent as they were written. Only what is set here replaces a member. Pure.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::agent::message::{CallError, MethodName};

/// The member that holds what is no part of the protocol.
const META: &str = "_meta";

/// How deep `_meta` objects are merged; below that the client's value stands as a whole.
const MAX_MERGE_DEPTH: usize = 16;

/// See the module.
#[derive(Debug, Clone)]
pub struct Params {
    method: &'static str,
    members: Members,
}

/// The members of one object, in order. Of two with the same name the last one counts, as in a scan.
#[derive(Debug, Clone, Default)]
struct Members(Vec<(String, Box<RawValue>)>);

impl Params {
    /// An empty object, for this method.
    #[must_use]
    pub fn new(method: &'static str) -> Self {
        Self {
            method,
            members: Members::default(),
        }
    }

    /// A client's object, or an empty one.
    ///
    /// # Errors
    ///
    /// [`CallError::BadParams`] when it is no object.
    pub fn from_client(method: &'static str, params: Option<&RawValue>) -> Result<Self, CallError> {
        let mut new = Self::new(method);
        if let Some(params) = params {
            new.members = serde_json::from_str(params.get()).map_err(|error| new.bad(&error))?;
        }
        Ok(new)
    }

    /// The method that they are for.
    #[must_use]
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// Sets a member.
    ///
    /// # Errors
    ///
    /// [`CallError::BadParams`] when the value cannot be written, as a path that is not UTF-8.
    pub fn set(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), CallError> {
        let value = serde_json::value::to_raw_value(value).map_err(|error| self.bad(&error))?;
        self.set_raw(name, value);
        Ok(())
    }

    /// Sets a member, unless there is one.
    ///
    /// # Errors
    ///
    /// [`CallError::BadParams`] when the value cannot be written.
    pub fn set_if_absent(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), CallError> {
        if self.members.get(name).is_none() {
            self.set(name, value)
        } else {
            Ok(())
        }
    }

    /// Sets a member to a value as it is written.
    pub fn set_raw(&mut self, name: &str, value: Box<RawValue>) {
        self.members.set(name, value);
    }

    /// Adds to `_meta`: objects are merged, and where both have a value the client's stays.
    ///
    /// # Errors
    ///
    /// [`CallError::BadParams`] when a value cannot be written.
    pub fn merge_meta(&mut self, meta: &Map<String, Value>) -> Result<(), CallError> {
        if meta.is_empty() {
            return Ok(());
        }
        let present = self.members.get(META).filter(|present| present.get() != "null");
        let merged = merge(present, meta, 0).map_err(|error| self.bad(&error))?;
        self.set_raw(META, merged);
        Ok(())
    }

    /// The object.
    ///
    /// # Errors
    ///
    /// [`CallError::BadParams`] when it cannot be written.
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

    /// Replaces every member of this name, in the place of the first.
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

/// `present` with what `added` has beyond it.
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
