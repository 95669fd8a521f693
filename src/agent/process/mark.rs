//! The mark in the environment of an agent and all its descendants.
//!
//! Pure. It does not know processes; `sweep` finds marks.

use std::fmt;

/// The variable that carries the mark. A daemon started inside an agent inherits it too, and is recognised by its
/// lock.
pub const MARK_VARIABLE: &str = "SESSIOND_MARK";

/// The name of the daemon's data folder, the same across all runs of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Instance(String);

impl Instance {
    /// Creates an instance. Removes characters that could split a mark or end a variable.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(
            name.chars()
                .filter(|character| character.is_ascii_alphanumeric() || *character == '-')
                .collect(),
        )
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the common prefix of the environment entries of this instance.
    pub(in crate::agent) fn environment_prefix(&self) -> String {
        format!("{MARK_VARIABLE}={}:", self.0)
    }
}

/// The mark of one spawn, written `<instance>:<spawn>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SpawnMark {
    instance: Instance,
    spawn: String,
}

impl SpawnMark {
    /// Creates a random mark.
    #[must_use]
    pub fn random(instance: &Instance) -> Self {
        Self {
            instance: instance.clone(),
            spawn: uuid::Uuid::new_v4().simple().to_string(),
        }
    }

    /// Parses a recorded mark. `None` for another form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (instance, spawn) = text.split_once(':')?;
        let is_plain = !spawn.is_empty() && spawn.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let parsed = Instance::new(instance);
        (is_plain && parsed.as_str() == instance).then(|| Self {
            instance: parsed,
            spawn: spawn.to_owned(),
        })
    }

    /// Returns the complete environment entry.
    pub(in crate::agent) fn environment_entry(&self) -> String {
        format!("{MARK_VARIABLE}={self}")
    }
}

impl fmt::Display for SpawnMark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.instance.0, self.spawn)
    }
}
