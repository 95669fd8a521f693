//! The official Rust SDK between an editor and an agent: rust-sdk-client COMMAND...
//!
//! Each line of JSON-RPC on stdin becomes a call of the SDK. The agent's answers, updates and requests, as
//! the SDK returns them, go to stdout in the same form. The SDK reports the exit code of COMMAND only as
//! text.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use agent_client_protocol::v1::schema::{
    CancelNotification, CloseSessionRequest, CreateTerminalRequest, DeleteSessionRequest, ForkSessionRequest,
    InitializeRequest, ListSessionsRequest, LoadSessionRequest, NewSessionRequest, PromptRequest, ReadTextFileRequest,
    RequestPermissionRequest, ResumeSessionRequest, SessionNotification, WaitForTerminalExitRequest,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{
    AcpAgent, Agent, Client, Error, JsonRpcRequest, JsonRpcResponse, on_receive_notification, on_receive_request,
};
use futures::StreamExt;
use futures::channel::mpsc;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The continuations for the answers to the agent's requests, by request id.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<HashMap<String, Continue>>>);

type Continue = Box<dyn FnOnce(Value) -> Result<(), Error> + Send>;

impl Asked {
    fn ask<A>(&self, method: &str, request: impl Serialize, responder: Responder<A>) -> Result<(), Error>
    where
        A: JsonRpcResponse + DeserializeOwned + Send,
    {
        let mut asked = self.0.lock().unwrap();
        let id = format!("asked {}", asked.len());
        println!(
            "{}",
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": request})
        );
        let answer = move |result| responder.respond(serde_json::from_value(result).unwrap());
        asked.insert(id, Box::new(answer));
        Ok(())
    }

    fn answer(&self, id: &str, result: Value) -> Result<(), Error> {
        // The entry stays, so that ids remain unique.
        let continue_with = self.0.lock().unwrap().insert(id.to_owned(), Box::new(|_| Ok(())));
        continue_with.unwrap()(result)
    }
}

fn call<R>(agent: &ConnectionTo<Agent>, id: Value, params: Value) -> Result<(), Error>
where
    R: JsonRpcRequest + DeserializeOwned,
    R::Response: Serialize + Send,
{
    let request: R = serde_json::from_value(params).unwrap();
    agent.send_request(request).on_receiving_result(async move |answer| {
        let message = match answer {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
        };
        println!("{message}");
        Ok(())
    })
}

fn take(agent: &ConnectionTo<Agent>, asked: &Asked, line: &str) -> Result<(), Error> {
    let mut message: Value = serde_json::from_str(line).unwrap();
    let (id, params) = (message["id"].take(), message["params"].take());
    match message["method"].as_str() {
        Some("initialize") => call::<InitializeRequest>(agent, id, params),
        Some("session/new") => call::<NewSessionRequest>(agent, id, params),
        Some("session/load") => call::<LoadSessionRequest>(agent, id, params),
        Some("session/resume") => call::<ResumeSessionRequest>(agent, id, params),
        Some("session/fork") => call::<ForkSessionRequest>(agent, id, params),
        Some("session/list") => call::<ListSessionsRequest>(agent, id, params),
        Some("session/prompt") => call::<PromptRequest>(agent, id, params),
        Some("session/close") => call::<CloseSessionRequest>(agent, id, params),
        Some("session/delete") => call::<DeleteSessionRequest>(agent, id, params),
        Some("session/cancel") => {
            let cancel: CancelNotification = serde_json::from_value(params).unwrap();
            agent.send_notification(cancel)
        }
        Some(method) => panic!("{method}"),
        None => asked.answer(id.as_str().unwrap(), message["result"].take()),
    }
}

fn main() -> Result<(), Error> {
    let command = AcpAgent::from_args(std::env::args().skip(1))?;
    let (sender, mut lines) = mpsc::unbounded();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            sender.unbounded_send(line.unwrap()).unwrap();
        }
    });
    let asked = Asked::default();
    let [permissions, files, terminals, exits] = [(); 4].map(|()| asked.clone());
    let client = Client
        .v1()
        .on_receive_notification(
            async move |update: SessionNotification, _| {
                println!(
                    "{}",
                    json!({"jsonrpc": "2.0", "method": "session/update", "params": update})
                );
                Ok(())
            },
            on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, _| {
                permissions.ask("session/request_permission", request, responder)
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ReadTextFileRequest, responder, _| {
                files.ask("fs/read_text_file", request, responder)
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: CreateTerminalRequest, responder, _| {
                terminals.ask("terminal/create", request, responder)
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: WaitForTerminalExitRequest, responder, _| {
                exits.ask("terminal/wait_for_exit", request, responder)
            },
            on_receive_request!(),
        );
    futures::executor::block_on(client.connect_with(command, async move |agent: ConnectionTo<Agent>| {
        while let Some(line) = lines.next().await {
            take(&agent, &asked, &line)?;
        }
        Ok(())
    }))
}
