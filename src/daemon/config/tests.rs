//! The settings of the configuration file, and their defaults.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use tempfile::TempDir;

use super::{CatalogContext, Config, ConfigError};
use crate::agent::catalog::{AgentEntry, Catalog};
use crate::agent::kinds;
use crate::agent::policy::InterruptPolicy;
use crate::conversation::backup::BackupRules;
use crate::transcript::transcript_list::Format;
use crate::words;

/// A machine with a folder on `PATH` and variables.
struct Machine {
    programs: TempDir,
    variables: Vec<(&'static str, &'static str)>,
    home: Option<PathBuf>,
}

impl Machine {
    /// Creates a machine with these programs on `PATH`.
    fn with(programs: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for program in programs {
            let path = folder.path().join(program);
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self {
            programs: folder,
            variables: Vec::new(),
            home: Some("/home/u".into()),
        }
    }

    fn catalog(&self, text: &str) -> Result<Catalog, ConfigError> {
        let variable = |name: &str| match name {
            "PATH" => Some(OsString::from(self.programs.path())),
            _ => self
                .variables
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| OsString::from(value)),
        };
        let around = CatalogContext {
            this_program: Path::new("/opt/bridge/sessiond"),
            data: Path::new("/home/u/.local/share/sessiond"),
            home: self.home.as_deref(),
            variable: &variable,
        };
        Config::parse(text)?.catalog(&around)
    }

    fn agent(&self, text: &str, name: &str) -> AgentEntry {
        let catalog = self.catalog(text).unwrap();
        catalog.get(&name.into()).unwrap().as_ref().clone()
    }

    fn names(&self, text: &str) -> (String, String) {
        let catalog = self.catalog(text).unwrap();
        (catalog.names(), catalog.default_agent().to_string())
    }
}

/// What is wrong with the text, whose words are in the snapshot.
#[track_caller]
fn refusal(text: &str) -> ConfigError {
    with_known_words(text, Machine::with(&[]).catalog(text).unwrap_err())
}

#[track_caller]
fn with_known_words(text: &str, error: ConfigError) -> ConfigError {
    words::check(text, "configuration", &error.to_string());
    error
}

/// The line, name and smallest value of a limit that was out of range.
#[track_caller]
fn limit(text: &str) -> (usize, String, u64) {
    let error = refusal(text);
    let (name, least) = error.problem.split_once(" must be at least ").expect(text);
    let (_, name) = name.split_once('.').unwrap();
    let least = least.split(';').next().unwrap();
    (error.line, name.to_owned(), least.parse().unwrap())
}

#[test]
fn an_empty_configuration_is_valid() {
    let config = Config::parse("").unwrap();
    let limits = &config.limits;
    assert_eq!(
        (
            config.rules(|| TimeZone::UTC).idle_ms,
            limits.max_line_bytes,
            limits.subscriber_events
        ),
        (30 * 60_000, 16 * 1024 * 1024, 65_536)
    );
    assert_eq!((limits.prompt_queue, limits.cancel_grace_ms), (32, 5_000));
    assert_eq!((limits.agent_start_ms, limits.session_open_ms), (30_000, 180_000));
    // The contract promises 256 connections with 64 requests each.
    assert!(limits.connections >= 256 && limits.requests_in_flight >= 64);
    assert_eq!(
        Machine::with(&[]).names(""),
        ("loopback".to_owned(), "loopback".to_owned())
    );
}

#[test]
fn absent_settings_keep_their_defaults() {
    let config = Config::parse("[limits]\nidle_minutes = 0\ncancel_grace_ms = 250").unwrap();
    assert_eq!(config.limits.max_line_bytes, 16 * 1024 * 1024);
    let rules = config.rules(|| TimeZone::UTC);
    assert_eq!((rules.idle_ms, rules.cancel_grace_ms), (0, 250));
    assert_eq!(rules.prompt_queue, 32);
}

#[test]
fn each_agent_has_its_own_interrupt_policy() {
    let machine = Machine::with(&[]);
    let of = |value: &str, name: &str| {
        let text = format!("[agents.{name}]\n{value}");
        machine.agent(&text, name).interrupts
    };
    let claude = |value| of(&format!("command = \"/bin/claude\"\n{value}"), "claude");
    assert_eq!(claude(""), InterruptPolicy::Ask);
    assert_eq!(claude("interrupts = \"ask\""), InterruptPolicy::Ask);
    assert_eq!(claude("interrupts = \"deny\""), InterruptPolicy::Deny);
    assert_eq!(claude("interrupts = \"allowReads\""), InterruptPolicy::AllowReads);
    assert_eq!(of("interrupts = \"deny\"", "loopback"), InterruptPolicy::Deny);
    let error = refusal("[agents.claude]\ncommand = \"/bin/claude\"\ninterrupts = \"allow\"");
    assert_eq!(error.line, 3);
}

#[test]
fn limits_that_allow_nothing_are_refused() {
    let config = Config::parse("[limits]\nsession_open_ms = 1").unwrap();
    assert_eq!(config.limits.session_open_ms, 1);
    for (name, value, least) in [
        ("session_open_ms", 0, 1),
        ("continuations", 0, 1),
        ("connections", 0, 1),
        ("requests_in_flight", 0, 1),
        ("subscriber_events", 0, 16),
        ("max_line_bytes", 100, 4_096),
    ] {
        let text = format!("[limits]\n{name} = {value}");
        assert_eq!(limit(&text), (2, name.to_owned(), least));
    }
}

#[test]
fn minutes_may_have_fractions() {
    let config = Config::parse("[limits]\nidle_minutes = 0.005\nagent_idle_minutes = 1.5").unwrap();
    assert_eq!(config.rules(|| TimeZone::UTC).idle_ms, 300);
    assert_eq!(config.agent_idle_ms(), 90_000);
    for minutes in ["-1", "-0.5", "nan"] {
        let text = format!("[limits]\nidle_minutes = {minutes}");
        assert_eq!(limit(&text), (2, "idle_minutes".to_owned(), 0));
    }
}

#[test]
fn minutes_without_end_do_not_overflow() {
    let config = Config::parse(&format!("[limits]\nidle_minutes = {}", i64::MAX)).unwrap();
    assert_eq!(config.rules(|| TimeZone::UTC).idle_ms, u64::MAX);
}

#[test]
fn the_default_agent_is_the_named_else_the_first_configured_else_the_first_found_else_loopback() {
    let two = "[agents.zebra]\ncommand = \"z\"\n[agents.ant]\ncommand = \"a\"\n";
    let named = format!("default_agent = \"ant\"\n{two}");
    let named_found = format!("default_agent = \"codex\"\n{two}");
    let table: [(&[&str], &str, &str, &str); 7] = [
        (&[], "", "loopback", "loopback"),
        (&["codex-acp"], "", "codex, loopback", "codex"),
        // The order of the kinds decides, not the order in the folder.
        (
            &["codex-acp", "claude-agent-acp"],
            "",
            "claude, codex, loopback",
            "claude",
        ),
        // The order of the file, which is not alphabetical.
        (&[], two, "zebra, ant, loopback", "zebra"),
        (&["codex-acp"], two, "zebra, ant, codex, loopback", "zebra"),
        (&[], &named, "zebra, ant, loopback", "ant"),
        (
            &["codex-acp"],
            &named_found,
            "zebra, ant, codex, loopback",
            "codex",
        ),
    ];
    for (programs, text, names, default) in table {
        let machine = Machine::with(programs);
        assert_eq!(
            machine.names(text),
            (names.to_owned(), default.to_owned()),
            "{text}"
        );
    }
}

/// The transcripts of an agent without its program can still be read.
#[test]
fn an_agent_with_transcripts_is_known_without_its_program_and_never_the_default() {
    let home = tempfile::tempdir().unwrap();
    let at_home = |programs: &[&str]| Machine {
        home: Some(home.path().to_path_buf()),
        ..Machine::with(programs)
    };
    for folder in [".gemini", ".claude"] {
        std::fs::create_dir(home.path().join(folder)).unwrap();
    }
    let names = |machine: &Machine, text: &str| {
        let (names, default) = machine.names(text);
        format!("{names}; {default}")
    };
    assert_eq!(names(&at_home(&[]), ""), "claude, loopback; loopback");
    let claude = at_home(&[]).agent("", "claude");
    assert_eq!(claude.command_line(), ["claude-agent-acp"]);
    assert_eq!(claude.transcripts, Some(home.path().join(".claude")));
    assert_eq!(
        names(&at_home(&["codex-acp"]), ""),
        "claude, codex, loopback; codex"
    );
    assert_eq!(
        names(&at_home(&["claude-agent-acp"]), ""),
        "claude, loopback; claude"
    );
    assert_eq!(
        names(&at_home(&[]), "[agents.claude]\ncommand = \"a\""),
        "claude, loopback; claude"
    );
    let text = "default_agent = \"claude\"";
    let error = with_known_words(text, at_home(&[]).catalog(text).unwrap_err());
    assert_eq!(error.line, 1);

    // The folder in the agent's own variable.
    let folder = home.path().to_str().unwrap().to_owned().leak();
    let mut elsewhere = Machine::with(&[]);
    elsewhere.variables = vec![("CODEX_HOME", folder)];
    assert_eq!(names(&elsewhere, ""), "codex, loopback; loopback");
}

#[test]
fn a_found_program_has_its_full_path_and_its_kinds_arguments() {
    let machine = Machine::with(&["claude-code-acp", "gemini"]);
    let claude = machine.agent("", "claude");
    assert_eq!(
        claude.launch.command.program,
        machine.programs.path().join("claude-code-acp")
    );
    assert_eq!(claude.kind, &kinds::CLAUDE);
    assert_eq!(machine.agent("", "gemini").launch.command.args, ["--acp"]);
}

#[test]
fn a_configured_agent_replaces_a_found_one() {
    let machine = Machine::with(&["claude-agent-acp"]);
    let text = "[agents.claude]\ncommand = \"/opt/adapter\"\nargs = [\"--fast\"]\nenv = { A = \"1\" }";
    let agent = machine.agent(text, "claude");
    let command = &agent.launch.command;
    assert_eq!(command.program, Path::new("/opt/adapter"));
    assert_eq!(command.args, ["--fast"]);
    assert_eq!(command.env["A"], "1");
    assert_eq!(
        machine.names(text),
        ("claude, loopback".to_owned(), "claude".to_owned())
    );
}

#[test]
fn a_kind_is_given_or_follows_from_the_name() {
    let table = [
        ("claude", "", &kinds::CLAUDE),
        ("work", "kind = \"claude\"", &kinds::CLAUDE),
        ("work", "command = \"w\"", &kinds::GENERIC),
        ("claude", "command = \"w\"\nkind = \"generic\"", &kinds::GENERIC),
        ("gemini", "", &kinds::GEMINI),
        ("qwen", "", &kinds::QWEN),
        // Named twice, and the same.
        ("qwen", "transcript_format = \"qwen\"", &kinds::QWEN),
        ("tests", "kind = \"loopback\"", &kinds::LOOPBACK),
    ];
    for (name, body, kind) in table {
        let text = format!("[agents.{name}]\n{body}");
        assert_eq!(Machine::with(&[]).agent(&text, name).kind, kind, "{text}");
    }
}

#[test]
fn a_known_kind_without_a_command_is_its_usual_program() {
    let agent = Machine::with(&[]).agent("[agents.claude]", "claude");
    assert_eq!(agent.launch.command.program, Path::new("claude-agent-acp"));
    // Removed for a configured agent too: as root it would start no session.
    assert_eq!(agent.launch.command.env_remove, ["IS_SANDBOX"]);
    let agent = Machine::with(&[]).agent("[agents.opencode]", "opencode");
    assert_eq!(agent.launch.command.args, ["acp"]);
}

#[test]
fn loopback_is_this_program_over_the_daemons_data_folder_and_always_there() {
    let machine = Machine::with(&[]);
    for text in [
        "",
        "[agents.loopback]",
        "[agents.other]\ncommand = \"o\"",
        "[agents.loopback]\nenv = { TZ = \"UTC\" }",
    ] {
        let agent = machine.agent(text, "loopback");
        let command = &agent.launch.command;
        assert_eq!(command.program, Path::new("/opt/bridge/sessiond"), "{text}");
        assert_eq!(
            command.args,
            ["loopback-agent", "--data", "/home/u/.local/share/sessiond"],
            "{text}"
        );
        assert_eq!(
            agent.transcripts.as_deref(),
            Some(Path::new("/home/u/.local/share/sessiond/loopback")),
            "{text}"
        );
    }
    let agent = machine.agent("[agents.loopback]\nenv = { TZ = \"UTC\" }", "loopback");
    assert_eq!(agent.launch.command.env["TZ"], "UTC");
}

#[test]
fn transcripts_are_where_the_file_says_else_the_agents_variable_else_its_kinds_folder() {
    let root = |variables: &[(&'static str, &'static str)], text: &str| {
        let mut machine = Machine::with(&[]);
        machine.variables = variables.to_vec();
        let agent = machine.agent(text, "claude");
        agent.transcripts.unwrap()
    };
    let daemon = [("CLAUDE_CONFIG_DIR", "/var/claude")];
    let own = "[agents.claude]\nenv = { CLAUDE_CONFIG_DIR = \"/srv/claude\" }";
    let own_home = "[agents.claude]\nenv = { HOME = \"/home/w\" }";
    let named =
        "[agents.claude]\ntranscripts = \"/data/claude\"\nenv = { CLAUDE_CONFIG_DIR = \"/srv/claude\" }";
    let table: [(&[(&str, &str)], &str, &str); 7] = [
        (&[], "[agents.claude]", "/home/u/.claude"),
        (&daemon, "[agents.claude]", "/var/claude"),
        // The agent's own environment overrides the daemon's.
        (&daemon, own, "/srv/claude"),
        (&[], own_home, "/home/w/.claude"),
        (&daemon, named, "/data/claude"),
        (&[], "[agents.claude]\ntranscripts = \"~/kept\"", "/home/u/kept"),
        // An empty variable counts as unset.
        (&[("CLAUDE_CONFIG_DIR", "")], "[agents.claude]", "/home/u/.claude"),
    ];
    for (variables, text, expected) in table {
        assert_eq!(root(variables, text), PathBuf::from(expected), "{text}");
    }
}

#[test]
fn a_generic_agent_has_no_transcripts_unless_configured() {
    let machine = Machine::with(&[]);
    let text = "[agents.mine]\ncommand = \"m\"";
    assert_eq!(machine.agent(text, "mine").transcripts, None);
}

#[test]
fn a_configured_format_is_how_transcripts_are_read() {
    let machine = Machine::with(&[]);
    let format = |more: &str| {
        let text = format!("[agents.mine]\ncommand = \"m\"\ntranscripts = \"/t\"{more}");
        let agent = machine.agent(&text, "mine");
        agent.listed_transcripts().map(|(_, format)| format)
    };
    assert_eq!(format(""), None);
    for known in Format::ALL {
        assert_eq!(
            format(&format!("\ntranscript_format = \"{}\"", known.name())),
            Some(known)
        );
    }
}

#[test]
fn a_tilde_is_the_home_folder() {
    let mut machine = Machine::with(&[]);
    let text = "[agents.mine]\ncommand = \"~/bin/agent\"";
    let program = machine.agent(text, "mine").launch.command.program;
    assert_eq!(program, Path::new("/home/u/bin/agent"));

    machine.home = None;
    let error = with_known_words(text, machine.catalog(text).unwrap_err());
    assert_eq!(error.line, 2);
}

#[test]
fn invalid_settings_of_an_agent_are_refused_with_its_name() {
    for (agent, line, settings) in [
        ("mine", 2, "command = \"bin/agent\""),
        ("claude", 2, "transcripts = \"transcripts\""),
        ("mine", 1, ""),
        ("mine", 2, "command = \"  \""),
        ("mine", 3, "command = \"m\"\nkind = \"clade\""),
        (
            "mine",
            4,
            "command = \"m\"\ntranscripts = \"/t\"\ntranscript_format = \"qwne\"",
        ),
        ("mine", 3, "command = \"m\"\ntranscript_format = \"qwen\""),
        ("claude", 2, "transcript_format = \"qwen\""),
        ("loopback", 2, "transcripts = \"/t\""),
    ] {
        let error = refusal(&format!("[agents.{agent}]\n{settings}"));
        assert_eq!(error.line, line, "{settings}");
        assert!(
            error.problem.starts_with(&format!("agent \"{agent}\": ")),
            "{error}"
        );
    }
}

/// Every setting, each with a value of every wrong type.
#[test]
fn a_wrong_type_is_reported_in_plain_words() {
    const NUMBER: &str = "a number";
    const WHOLE: &str = "a whole number, 0 or more";
    let settings = [
        ("default_agent", "a string"),
        ("agents", "a table"),
        ("agents.mine", "a table"),
        ("agents.mine.command", "a string"),
        ("agents.mine.args", "an array"),
        ("agents.mine.env", "a table"),
        ("agents.mine.env.A", "a string"),
        ("agents.mine.kind", "a string"),
        ("agents.mine.transcripts", "a string"),
        ("agents.mine.transcript_format", "a string"),
        ("agents.mine.interrupts", "a string"),
        ("limits", "a table"),
        ("limits.idle_minutes", NUMBER),
        ("limits.agent_idle_minutes", NUMBER),
        ("limits.max_line_bytes", WHOLE),
        ("limits.subscriber_events", WHOLE),
        ("limits.prompt_queue", WHOLE),
        ("limits.cancel_grace_ms", WHOLE),
        ("limits.agent_start_ms", WHOLE),
        ("limits.session_open_ms", WHOLE),
        ("limits.continuations", WHOLE),
        ("limits.connections", WHOLE),
        ("limits.requests_in_flight", WHOLE),
        ("keep", "a table"),
        ("keep.enabled", "true or false"),
        ("keep.days", WHOLE),
        ("keep.bytes", WHOLE),
        ("editors", "a table"),
        ("editors.commands", "true or false"),
    ];
    let values = [
        ("\"soon\"", "a string"),
        ("7", "a number, a whole number, 0 or more"),
        ("-7", "a number"),
        ("1.5", "a number"),
        ("true", "true or false"),
        // As a table, an array is its entries in order.
        ("[]", "an array, a table"),
        ("{}", "a table"),
    ];
    for (name, expected) in settings {
        for (value, fits) in values {
            if fits.contains(expected) {
                continue;
            }
            let text = format!("# mine\n{name} = {value}");
            let error = Machine::with(&[]).catalog(&text).unwrap_err();
            assert_eq!(error.line, 2, "{text}");
            // All settings of a type have the same words.
            let told = error.problem;
            assert!(told.starts_with(name), "{text}: {told}");
            let told = told.replacen(name, "SETTING", 1);
            let case = format!("a setting that is {expected} = {value}");
            words::check(&case, "configuration", &told);
        }
    }
    assert_eq!(refusal("agents.mine.args = [\n \"a\",\n 1]").line, 3);
}

#[test]
fn backups_can_be_turned_off_and_limited() {
    let rules = |text: &str| Config::parse(text).unwrap().keep;
    let is_enabled = true;
    let (max_days, max_bytes) = (None, None);
    assert_eq!(
        rules(""),
        BackupRules {
            is_enabled,
            max_days,
            max_bytes
        }
    );
    let (max_days, max_bytes) = (Some(90), Some(10_000_000));
    assert_eq!(
        rules("[keep]\ndays = 90\nbytes = 10_000_000"),
        BackupRules {
            is_enabled,
            max_days,
            max_bytes
        }
    );
    assert!(!rules("[keep]\nenabled = false").is_enabled);
    assert_eq!(limit("[keep]\ndays = 0"), (2, "days".to_owned(), 1));
    assert_eq!(limit("[keep]\nbytes = 999"), (2, "bytes".to_owned(), 1_000_000));
}

#[test]
fn the_documentation_shows_a_whole_configuration_with_the_defaults() {
    let page = include_str!("../../../packaging/docs/configuration.md");
    let shown = page
        .split("```toml\n")
        .nth(1)
        .and_then(|part| part.split("```").next())
        .unwrap();
    let config = Config::parse(shown).unwrap();
    let usual = Config::parse("").unwrap();
    assert_eq!(format!("{:?}", config.limits), format!("{:?}", usual.limits));
    assert!(Machine::with(&[]).catalog(shown).is_ok());
    let limits = format!("{:?}", usual.limits);
    let limits: Vec<&str> = limits
        .split(' ')
        .filter_map(|word| word.strip_suffix(':'))
        .collect();
    assert!(limits.len() >= 7, "{limits:?}");
    for limit in limits {
        assert!(
            shown.contains(&format!("{limit} = ")),
            "the documentation lacks {limit}"
        );
    }
}
