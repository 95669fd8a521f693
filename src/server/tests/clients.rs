//! The Rust client.

use crate::server::SocketLimits;
use bridge_protocol::client::{self, ConnectError};
use jsonrpsee::core::client::{ClientT, SubscriptionClientT};
use jsonrpsee::core::params::ObjectParams;
use jsonrpsee::rpc_params;
use serde_json::Value;

use super::support::{start, within};

#[tokio::test]
async fn the_rust_client_calls_and_subscribes() {
    let server = start(SocketLimits::default());
    let client = client::connect(&server.path).await.unwrap();
    let mut params = ObjectParams::new();
    params.insert("count", 3).unwrap();
    let mut subscription = within(client.subscribe::<u64, _>("test/subscribe", params, "test/unsubscribe"))
        .await
        .unwrap();
    for expected in 0..3 {
        assert_eq!(within(subscription.next()).await.unwrap().unwrap(), expected);
    }
    server.live_is(1).await;
    subscription.unsubscribe().await.unwrap();
    server.live_is(0).await;
    let mut params = ObjectParams::new();
    params.insert("bytes", 20 * 1024 * 1024).unwrap();
    let large: String = within(client.request("test/large", params)).await.unwrap();
    assert_eq!(large.len(), 20 * 1024 * 1024);
    let error = within(client.request::<Value, _>("test/echo", rpc_params![1]))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("-32602") || error.to_string().contains("InvalidParams"),
        "{error}"
    );
    server.stop.cancel();
    within(server.task).await.unwrap();
    assert!(
        within(client.request::<Value, _>("test/echo", ObjectParams::new()))
            .await
            .is_err()
    );
}

#[tokio::test]
async fn the_rust_client_tells_that_no_daemon_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.sock");
    assert!(matches!(
        client::connect(&path).await,
        Err(ConnectError::NotRunning { .. })
    ));
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(matches!(
        client::connect(&path).await,
        Err(ConnectError::NotRunning { .. })
    ));
    let long = folder.path().join("x".repeat(200));
    let error = client::connect(&long).await.unwrap_err();
    assert!(error.to_string().contains("xxx"), "{error}");
}
