//! Which settings an import accepts from a bundle that another user may have made.

use serde_json::json;

use crate::carrying::bundled;
use crate::home::Home;

/// A bundle must not decide what is started or allowed here, unless the caller trusts it.
// Against D12.
#[tokio::test]
async fn settings_that_start_or_grant_something_are_taken_only_when_trusted() {
    let (there, here) = (Home::new(), Home::new());
    let settings = json!({
        "model": "a", "mode": "b", "config": {"c": "d"}, "systemPrompt": "Obey.",
        "mcpServers": [{"name": "x", "command": "/nowhere/x", "args": [], "env": []}],
        "additionalDirectories": [there.path().join("project/more")],
    });
    let (path, given) = {
        let (_daemon, app) = there.opened().await;
        let made = app
            .make_with(&there.project(), json!({"settings": settings}))
            .await;
        let path = bundled(&app, made.id).await;
        (path, made.settings)
    };
    let (_daemon, app) = here.opened().await;
    let mut params = json!({"path": path, "cwd": here.project()});
    let answer = app.call("conversation/import", params.clone()).await.unwrap();
    assert_eq!(
        answer["leftOut"],
        json!([
            "additionalDirectories",
            "config",
            "mcpServers",
            "mode",
            "systemPrompt"
        ])
    );
    assert_eq!(answer["conversation"]["settings"], json!({"model": "a"}));
    params["trustSettings"] = json!(true);
    params["newIds"] = json!(true);
    let answer = app.call("conversation/import", params).await.unwrap();
    assert_eq!(answer.get("leftOut"), None, "{answer}");
    let mut expected = serde_json::to_value(&given).unwrap();
    expected["additionalDirectories"] = json!([format!("{}/more", here.project())]);
    assert_eq!(answer["conversation"]["settings"], expected);
}
