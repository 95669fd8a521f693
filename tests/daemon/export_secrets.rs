//! Secret values of MCP servers are exported only if the call asks for them.

use std::fs;

use serde_json::{Value, json};

use crate::home::Home;
use crate::support::App;

async fn export(app: &App, params: Value) -> Value {
    app.call("conversation/export", params).await.unwrap()
}

/// Returns the bundle's decompressed archive as text.
fn unpacked(answer: &Value) -> String {
    let bytes = fs::read(answer["path"].as_str().unwrap()).unwrap();
    String::from_utf8_lossy(&zstd::decode_all(bytes.as_slice()).unwrap()).into_owned()
}

#[tokio::test]
async fn values_of_servers_are_exported_only_where_that_is_asked_for() {
    let (there, here) = (Home::new(), Home::new());
    let servers = json!([
        {"name": "one", "command": "/bin/true", "args": ["--safe"],
         "env": [{"name": "KEY", "value": "s3cret"}, {"name": "OTHER", "value": "s3cret"}]},
        {"type": "http", "name": "two", "url": "http://127.0.0.1:9/",
         "headers": [{"name": "Authorization", "value": "Bearer s3cret"}]},
        {"type": "sse", "name": "three", "url": "http://127.0.0.1:9/", "headers": {"Authorization": "s3cret"}},
        {"name": "four", "command": "/bin/true", "args": [], "env": []},
    ]);
    let left_out = json!([
        {"server": "one", "member": "env", "name": "KEY"},
        {"server": "one", "member": "env", "name": "OTHER"},
        {"server": "two", "member": "headers", "name": "Authorization"},
        {"server": "three", "member": "headers", "name": "Authorization"},
    ]);
    let (_daemon, app) = there.opened().await;
    let made = app
        .make_with(&there.project(), json!({"settings": {"mcpServers": servers}}))
        .await;
    let id = json!(made.id);
    let exported = async |format: &str, secrets: Value, path: Value| {
        let params = json!({"conversationId": id, "format": format, "secrets": secrets, "path": path});
        export(&app, params).await
    };
    let plain = exported("bundle", json!(false), Value::Null).await;
    assert!(!unpacked(&plain).contains("s3cret"));
    assert_eq!(plain["missingValues"], left_out, "{plain}");
    let whole = exported("bundle", json!(true), Value::Null).await;
    assert!(unpacked(&whole).contains("s3cret"));
    assert_eq!(whole.get("missingValues"), None, "{whole}");

    let file = json!(there.path().join("plain.json"));
    let told = exported("json", Value::Null, file.clone()).await;
    assert_eq!(told["missingValues"], left_out, "{told}");
    let text = fs::read_to_string(file.as_str().unwrap()).unwrap();
    assert!(
        text.contains("Authorization") && !text.contains("s3cret"),
        "{text}"
    );
    let told = exported("json", json!(true), Value::Null).await;
    assert_eq!(told["conversation"]["settings"]["mcpServers"], servers);

    let (_daemon, app) = here.opened().await;
    let import = async |bundle: &Value, trusted: bool| {
        let params = json!({"path": bundle["path"], "cwd": here.project(), "newIds": true,
            "trustSettings": trusted});
        app.call("conversation/import", params).await.unwrap()
    };
    let answer = import(&plain, true).await;
    assert_eq!(answer["missingValues"], left_out, "{answer}");
    let mut without = servers.clone();
    for (server, member, empty) in [
        (0, "env", json!([])),
        (1, "headers", json!([])),
        (2, "headers", json!({})),
    ] {
        without[server][member] = empty;
    }
    assert_eq!(answer["conversation"]["settings"]["mcpServers"], without);
    let answer = import(&whole, true).await;
    assert_eq!(answer.get("missingValues"), None, "{answer}");
    assert_eq!(answer["conversation"]["settings"]["mcpServers"], servers);
    let answer = import(&plain, false).await;
    assert_eq!(answer["leftOut"], json!(["mcpServers"]), "{answer}");
    assert_eq!(answer["missingValues"], left_out, "{answer}");
}
