//! Selects the settings of a bundle that are used, because it may come from another user, and moves the folders in
//! them. Pure.

use std::collections::BTreeMap;

use bridge_protocol::conversation::Settings;
use bridge_protocol::raw::RawJson;

use crate::transcript::relocate::Relocation;

/// The settings that an import takes over, and the names of those that it leaves out.
///
/// The next prompt starts the commands of `mcpServers` with their environments; `mode` and `config` may grant permissions in
/// advance, `additionalDirectories` opens folders, and `systemPrompt` gives the agent instructions that nobody here has read.
/// Without the caller's trust, none of them is imported.
pub(super) fn trusted_settings(given: Settings, trusted: bool) -> (Settings, Vec<String>) {
    if trusted {
        return (given, Vec::new());
    }
    let settings = Settings {
        model: given.model,
        ..Settings::default()
    };
    let rest = Settings { model: None, ..given };
    // A setting that is added later is omitted too, until it is copied above. The types rule out an error.
    let rest = serde_json::to_string(&rest).unwrap_or_default();
    let rest: BTreeMap<String, RawJson> = serde_json::from_str(&rest).unwrap_or_default();
    let left_out = rest
        .into_iter()
        .filter(|(_, value)| !matches!(value.get(), "null" | "[]" | "{}"));
    (settings, left_out.map(|(name, _)| name).collect())
}

/// Moves the folders in the settings: what was below the conversation's old folder is now below its new one.
pub(super) fn relocated(mut settings: Settings, old_cwd: &str, new_cwd: &str) -> Settings {
    let relocation = Relocation {
        folders: vec![(old_cwd.to_owned(), new_cwd.to_owned())],
        ..Relocation::default()
    };
    for folder in settings.additional_directories.iter_mut().flatten() {
        if let Some(moved) = relocation.relocated_folder(folder) {
            *folder = moved;
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Settings {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn what_says_nothing_is_not_told_as_left_out() {
        let empty = read(r#"{"config":{},"mcpServers":[],"additionalDirectories":[]}"#);
        assert_eq!(trusted_settings(empty, false), (Settings::default(), Vec::new()));
    }
}
