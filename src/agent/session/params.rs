//! A parameter object that keeps unknown members.
//!
//! Members are raw text in their original order, so a client's unknown members and numbers of any size reach the
//! agent as written. Only members that are set here are replaced. Pure.

use bridge_protocol::raw::RawJson;
use indexmap::IndexMap;
use serde::Serialize;
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
    members: IndexMap<String, RawJson>,
}

impl Params {
    /// Creates a copy of a client's object, or an empty object.
    ///
    /// # Errors
    ///
    /// [`CallError::BadParams`] if it is not an object.
    pub fn from_client(method: &'static str, params: Option<&RawValue>) -> Result<Self, CallError> {
        let mut new = Self {
            method,
            members: IndexMap::new(),
        };
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
        match self.members.contains_key(name) {
            true => Ok(()),
            false => self.set(name, value),
        }
    }

    /// Sets a member to a raw value.
    pub fn set_raw(&mut self, name: &str, value: Box<RawValue>) {
        self.members.insert(name.to_owned(), RawJson::new(value));
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
        self.members.insert(META.to_owned(), merged);
        Ok(())
    }

    /// Encodes the object.
    ///
    /// # Errors
    ///
    /// [`CallError::BadParams`] if it cannot be encoded.
    pub fn build(&self) -> Result<Box<RawValue>, CallError> {
        serde_json::value::to_raw_value(&self.members).map_err(|error| self.bad(&error))
    }

    fn bad(&self, error: &serde_json::Error) -> CallError {
        CallError::BadParams {
            method: MethodName::known(self.method),
            detail: error.to_string(),
        }
    }
}

/// Adds the members of `added` that `present` lacks.
fn merge(present: Option<&RawJson>, added: &Map<String, Value>, depth: usize) -> serde_json::Result<RawJson> {
    let Some(present) = present else {
        return RawJson::from_value(added);
    };
    let is_object = present.get().starts_with('{');
    if !is_object || depth == MAX_MERGE_DEPTH {
        return Ok(present.clone());
    }
    let mut members: IndexMap<String, RawJson> = present.read()?;
    for (name, value) in added {
        let merged = match (members.get(name), value) {
            (None, value) => RawJson::from_value(value)?,
            (Some(inner), Value::Object(value)) => merge(Some(inner), value, depth + 1)?,
            (Some(_), _) => continue,
        };
        members.insert(name.clone(), merged);
    }
    RawJson::from_value(&members)
}
