//! Errors in the configuration: each names its file and line, and the daemon does not start.

use bridge_protocol::error::ErrorKind;
use serde_json::json;

use super::error_words::check_start;
use crate::home::Home;
use crate::support::refused;

#[test]
fn each_error_names_its_line() {
    let table = [
        (3, "[agents.mine]\ncommand = \"x\"\nshell = true\n"),
        (2, "[agents.mine]\ncommand = 7\n"),
        (2, "[agents]\nmine = \"x\"\n"),
        (4, "[agents.mine]\ncommand = \"x\"\n\nargs = [1]\n"),
        (3, "[agents.mine]\ncommand = \"x\"\ninterrupts = \"zork\"\n"),
        (
            5,
            "[agents.a]\ncommand = \"x\"\n[agents.mine]\ncommand = \"x\"\nkind = \"clade\"\n",
        ),
        (3, "[agents.mine]\ncommand = \"x\"\ntranscripts = \"relative\"\n"),
        (3, "[agents.mine]\nkind = \"generic\"\ncommand = \"bin/agent\"\n"),
        (2, "\n[agents.mine]\nkind = \"generic\"\n"),
        (2, "\nagents.mine.kind = \"generic\"\n"),
        (2, "# mine\ndefault_agent = \"hal\"\n"),
        (3, "[agents.mine]\ncommand = \"x\"\nenv = []\n"),
        (2, "[limits]\nidle_minutes = \"soon\"\n"),
        (3, "[limits]\n\nprompt_queue = 1.5\n"),
        (2, "[keep]\nenabled = \"yes\"\n"),
        (2, "[keep]\ndays = -1\n"),
        (1, "limits = 7\n"),
        (2, "[limits]\nmax_line_bytes = 10\n"),
        (3, "[limits]\nprompt_queue = 1\nidle_minutes = -1\n"),
        (2, "[limits]\nsession_open_ms = 0\n"),
        (1, "limits.continuations = 0\n"),
        (2, "[keep]\ndays = 0\n"),
        (2, "[keep]\nzork = 0\n"),
        (2, "[editors]\ncommands = \"no\"\n"),
        (2, "[editors]\nzork = true\n"),
        (1, "colour = \"red\"\n"),
        (2, "default_agent = \"loopback\"\n[agents\n"),
    ];
    for (line, config) in table {
        let home = Home::new();
        home.configure(config);
        let (status, said) = home.run(&[]);
        let error = check_start(&format!("with {}", config.trim()), status.code(), &said);
        let place = format!("{}, line {line}: ", home.config_file().display());
        assert!(error.contains(&place), "{config}: {error:?} lacks {place:?}");
        assert!(!home.socket().exists(), "{config}");
    }
}

/// The daemon reads the file only when it starts.
#[tokio::test]
async fn an_agent_that_was_added_after_the_start_is_refused_with_the_reason() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let new = async || {
        let params = json!({"agent": "late", "cwd": home.project()});
        let error = refused(app.call("conversation/new", params).await, ErrorKind::NotFound);
        error.detail("configurationChanged")
    };
    assert_eq!(new().await, json!(null));
    for config in ["command = \"/bin/true\"", "command = 7"] {
        home.configure(&format!("[agents.late]\n{config}\n"));
        assert_eq!(new().await, json!(true), "{config}");
    }
}
