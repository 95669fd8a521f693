//! The feature `client` alone is all that an app needs: this is built with nothing else by
//! `cargo test -p bridge-protocol --features client --test client`.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use bridge_protocol::client::{self, Call as _};
use bridge_protocol::method::Shutdown;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;

#[tokio::test]
async fn a_client_asks_over_the_socket_and_reads_the_answer() {
    // A name of its own for each process, short as a socket's path has to be.
    let path = std::env::temp_dir().join(format!("bp{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let daemon = async {
        let (stream, _) = listener.accept().await.unwrap();
        let (lines, mut output) = stream.into_split();
        let mut line = String::new();
        BufReader::new(lines).read_line(&mut line).await.unwrap();
        assert!(line.contains("\"daemon/shutdown\""), "{line}");
        let request: serde_json::Value = serde_json::from_str(&line).unwrap();
        let answer = serde_json::json!({"jsonrpc": "2.0", "id": request["id"], "result": {}});
        output.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
        request["params"]["graceMs"].clone()
    };
    let app = async {
        let client = client::connect(&path).await.unwrap();
        let shutdown = Shutdown { grace_ms: Some(250) };
        client.call(shutdown).await.unwrap();
    };
    let (grace, ()) = tokio::join!(daemon, app);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(grace, 250);
}
