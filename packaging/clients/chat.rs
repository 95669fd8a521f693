//! A turn with an agent: `cargo run --example chat -- SOCKET FOLDER PROMPT`. Lists the newest conversations, makes one in
//! the folder, streams the answer, allows once what the agent asks for, and goes on where it was when the connection is
//! lost. In a project of your own it needs `bridge-protocol` with the feature `client`, `serde_json` and `tokio`.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use bridge_protocol::InterruptId;
use bridge_protocol::client::{Client, ClientError, ConnectError, connect};
use bridge_protocol::event::Event;
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::rpc::ConversationRpcClient as _;
use bridge_protocol::turn::{Interrupt, InterruptKind, TurnResult};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, folder, prompt] = arguments.as_slice() else {
        return Err("usage: chat SOCKET FOLDER PROMPT".into());
    };
    let mut out = std::io::stdout();
    let turn = chat(Path::new(socket), folder, prompt, &mut out).await?;
    let how = serde_json::to_value(turn.stop_reason)?;
    writeln!(out, "\n{}", how.as_str().unwrap_or_default())?;
    match turn.failure {
        Some(failure) => Err(failure.message.into()),
        None => Ok(()),
    }
}

/// Has the turn, and gives how it ended.
async fn chat(
    socket: &Path,
    folder: &str,
    prompt: &str,
    out: &mut impl Write,
) -> Result<TurnResult, Box<dyn Error>> {
    let mut client = connect(socket).await?;
    let page = client
        .list(None, None, None, None, None, None, None, Some(5))
        .await?;
    for conversation in page.conversations {
        writeln!(out, "{} {}", conversation.id, conversation.title)?;
    }
    let made = client
        .create(None, folder.to_owned(), None, None, None, None, None)
        .await?;
    let (id, mut cursor) = (made.conversation.id, None);
    // The same call again, and not a second turn.
    let request = format!("chat-{id}");
    let mut answers = BTreeMap::new();
    loop {
        let mut events = client.events(Some(id.into()), cursor.clone()).await?;
        for (interrupt, outcome) in &answers {
            // Once more, since it may have been lost on the way: who was first counts.
            let _answered = client
                .respond(
                    id.into(),
                    InterruptId::clone(interrupt),
                    RawJson::clone(outcome),
                    None,
                    None,
                )
                .await;
        }
        let words = PromptContent::text(prompt);
        let mut turn = Box::pin(client.prompt(id.into(), words, None, None, None, Some(request.clone())));
        let ended = loop {
            let envelope = tokio::select! {
                biased;
                event = events.next() => match event {
                    Some(Ok(envelope)) => envelope,
                    // The connection is lost, or the events came too fast.
                    _ => break None,
                },
                ended = &mut turn => break Some(ended),
            };
            cursor = Some(envelope.cursor);
            let mut asked = Vec::new();
            match envelope.event {
                Event::Update { update, .. } => {
                    let update: Value = serde_json::from_str(update.get())?;
                    if update["sessionUpdate"] == "agent_message_chunk" {
                        write!(out, "{}", update["content"]["text"].as_str().unwrap_or_default())?;
                        out.flush()?;
                    }
                }
                Event::InterruptRaised { interrupt } => asked.push(interrupt),
                // Also where some events are missed.
                Event::Snapshot { conversation, .. } => asked.extend(conversation.interrupts),
                Event::InterruptResolved { interrupt_id, .. } => drop(answers.remove(&interrupt_id)),
                _ => {}
            }
            for interrupt in asked {
                if let Some(outcome) = allowed_once(&interrupt)? {
                    answers.insert(interrupt.id.clone(), outcome.clone());
                    let _answered = client.respond(id.into(), interrupt.id, outcome, None, None).await;
                }
            }
        };
        drop(turn);
        match ended {
            Some(Ok(turn)) => return Ok(turn),
            // What the daemon answered stands; what was lost on the way is asked for again.
            Some(Err(error @ ClientError::Call(_))) => return Err(error.into()),
            Some(Err(_)) | None => client = connected(socket).await?,
        }
    }
}

/// A connection to a daemon that may just be starting again.
async fn connected(socket: &Path) -> Result<Client, ConnectError> {
    for _ in 0..30 {
        if let Ok(client) = connect(socket).await {
            return Ok(client);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    connect(socket).await
}

/// What allows it once, or calls it off where there is no such thing; none for what is no permission.
fn allowed_once(interrupt: &Interrupt) -> Result<Option<RawJson>, serde_json::Error> {
    if interrupt.kind != InterruptKind::Permission {
        return Ok(None);
    }
    let asked: Value = serde_json::from_str(interrupt.request.get())?;
    let mut options = asked["options"].as_array().into_iter().flatten();
    let once = options.find(|option| option["kind"] == "allow_once");
    let outcome = match once {
        Some(once) => json!({"outcome": "selected", "optionId": once["optionId"]}),
        None => json!({"outcome": "cancelled"}),
    };
    Ok(Some(outcome.into()))
}
