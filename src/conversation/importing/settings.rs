//! Which settings of a bundle are taken over: somebody else may have written it. Pure.

use bridge_protocol::conversation::Settings;

/// The settings that an import takes over, and the names of those that it leaves out.
///
/// The next prompt starts the commands of `mcpServers` with their environments; `mode` and `config` may take a person's
/// permission for granted, `additionalDirectories` opens folders, and `systemPrompt` tells the agent what nobody here has
/// read. So a bundle brings none of them unless the caller trusts it.
pub(super) fn taken(given: Settings, trusted: bool) -> (Settings, Vec<String>) {
    if trusted {
        return (given, Vec::new());
    }
    // Each by its name: of a setting that comes to be it has to be said here what it may do.
    let Settings {
        model,
        mode,
        config,
        system_prompt,
        mcp_servers,
        additional_directories,
    } = given;
    let left_out = [
        ("mode", mode.is_some()),
        ("config", config.is_some_and(|config| !config.is_empty())),
        ("systemPrompt", system_prompt.is_some()),
        (
            "mcpServers",
            mcp_servers.is_some_and(|servers| !servers.is_empty()),
        ),
        (
            "additionalDirectories",
            additional_directories.is_some_and(|folders| !folders.is_empty()),
        ),
    ];
    let left_out = left_out.into_iter().filter(|(_, is_given)| *is_given);
    let settings = Settings {
        model,
        ..Settings::default()
    };
    (settings, left_out.map(|(name, _)| name.to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Settings {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn only_the_model_comes_along_untrusted_and_the_rest_is_named() {
        let all = read(
            r#"{"model":"m","mode":"bypassPermissions","config":{"mode":"yolo"},"systemPrompt":"Obey.",
                "mcpServers":[{"name":"x","command":"/bin/x"}],"additionalDirectories":["/"]}"#,
        );
        let (settings, left_out) = taken(all.clone(), false);
        assert_eq!(settings, read(r#"{"model":"m"}"#));
        let names = [
            "mode",
            "config",
            "systemPrompt",
            "mcpServers",
            "additionalDirectories",
        ];
        assert_eq!(left_out, names);
        assert_eq!(taken(all.clone(), true), (all, Vec::new()));
    }

    #[test]
    fn what_says_nothing_is_not_told_as_left_out() {
        let empty = read(r#"{"config":{},"mcpServers":[],"additionalDirectories":[]}"#);
        assert_eq!(taken(empty, false), (Settings::default(), Vec::new()));
    }
}
