//! `export --secrets` at a pipe.

use serde_json::{Value, json};

use super::{run, text};

/// Values of MCP servers are printed only with the option; without it their names are.
#[tokio::test]
async fn values_of_servers_reach_a_pipe_only_with_the_option() {
    let home = crate::home::Home::new();
    let daemon = home.start();
    let server = json!({"name": "one", "command": "/bin/true", "args": [], "env": [{"name": "KEY", "value": "s3cret"}]});
    let settings = json!({"settings": {"mcpServers": [server]}});
    let id = daemon.app().await.make_with(&home.project(), settings).await.id;
    let exported = |options: &[&str]| {
        let id = id.to_string();
        let output = run(home.path(), &[&["export", &id, "-o", "-"], options].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let printed = text(&output.stdout);
        (serde_json::from_str::<Value>(&printed).unwrap(), printed)
    };
    let (answer, printed) = exported(&[]);
    assert!(!printed.contains("s3cret"), "{printed}");
    let value = |answer: &Value| answer["conversation"]["settings"]["mcpServers"][0]["env"][0].clone();
    assert_eq!(value(&answer), json!({"name": "KEY"}), "{printed}");
    let (answer, printed) = exported(&["--secrets"]);
    assert_eq!(
        value(&answer),
        json!({"name": "KEY", "value": "s3cret"}),
        "{printed}"
    );
}
