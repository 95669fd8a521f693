//! The mark that an agent and all its descendants carry in their environment.
//!
//! Pure. It must not know processes; how marks are found is `sweep`'s.

use std::fmt;

/// The variable that carries the mark. A daemon that is started from inside an agent inherits it as everything else does,
/// and is recognised by its lock.
pub const MARK_VARIABLE: &str = "SESSIOND_MARK";

/// Whose agents they are: stable for one data folder over all lives of its daemon.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Instance(String);

impl Instance {
    /// An instance by its name; what could break a mark apart or end a variable is left out of it.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(
            name.chars()
                .filter(|character| character.is_ascii_alphanumeric() || *character == '-')
                .collect(),
        )
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The environment entry with which every mark of this instance begins.
    pub(in crate::agent) fn environment_prefix(&self) -> String {
        format!("{MARK_VARIABLE}={}:", self.0)
    }
}

/// One spawn's mark, written `<instance>:<spawn>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SpawnMark {
    instance: Instance,
    spawn: String,
}

impl SpawnMark {
    /// A new, random mark.
    #[must_use]
    pub fn random(instance: &Instance) -> Self {
        Self {
            instance: instance.clone(),
            spawn: uuid::Uuid::new_v4().simple().to_string(),
        }
    }

    /// A mark that was written down; none where it is not of the form that [`SpawnMark`] is written in.
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

    /// Whose agent it is.
    #[must_use]
    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// The whole environment entry.
    pub(in crate::agent) fn environment_entry(&self) -> String {
        format!("{MARK_VARIABLE}={self}")
    }
}

impl fmt::Display for SpawnMark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.instance.0, self.spawn)
    }
}
