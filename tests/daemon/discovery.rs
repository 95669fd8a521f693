//! `rpc.discover`: the daemon returns the document that packages contain, which describes the methods that it serves.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::home::Home;

#[tokio::test]
async fn the_daemon_tells_the_document_of_what_it_serves() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let told = app.call("rpc.discover", json!({})).await.unwrap();
    let packaged = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/openrpc.json");
    let packaged: Value = serde_json::from_str(&fs::read_to_string(packaged).unwrap()).unwrap();
    assert!(told == packaged, "packaging/openrpc.json differs");
    // The document is built only once; later calls return the same one.
    assert_eq!(app.call("rpc.discover", json!({})).await.unwrap(), told);

    // No method accepts an empty array as its parameters, so these calls have no effect and fail with the code of
    // invalid parameters. A missing method would fail with another code.
    let mut raw = daemon.raw().await;
    let names = told["methods"]
        .as_array()
        .unwrap()
        .iter()
        .map(|method| &method["name"]);
    for name in names {
        let answer = raw.ask(name.as_str().unwrap(), json!([])).await;
        assert_eq!(answer["error"]["code"], -32602, "{name}: {answer}");
    }
    // A parameter that is an object does not accept an empty array either.
    let schemas = &told["components"]["schemas"];
    let mut objects = 0;
    for method in told["methods"].as_array().unwrap() {
        for parameter in method["params"].as_array().unwrap() {
            let schema = parameter["schema"]["$ref"]
                .as_str()
                .and_then(|named| named.rsplit('/').next());
            let schema = schema.map_or(&parameter["schema"], |name| &schemas[name]);
            if schema["type"] != "object" {
                continue;
            }
            objects += 1;
            let name = parameter["name"].as_str().unwrap();
            let answer = raw.ask(method["name"].as_str().unwrap(), json!({name: []})).await;
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
            assert_eq!(answer["error"]["data"]["parameter"], name, "{answer}");
        }
    }
    assert!(objects > 0, "{schemas}");
    let answer = raw.ask("rpc.neverHeardOf", json!([])).await;
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
}
