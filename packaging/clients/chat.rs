//! A turn with an agent. Lists the newest conversations, makes one in a folder, streams the answer, allows once
//! what the agent asks for, and goes on where it was when the connection is lost.

use std::error::Error;
use std::io::Write;
use std::path::Path;

use bridge_protocol::client::connect;
use bridge_protocol::event::Event;
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::rpc::ConversationRpcClient as _;
use bridge_protocol::turn::StopReason;
use jsonrpsee::core::client::Error as ClientError;
use serde_json::{Value, json};

pub(crate) async fn chat(
    socket: &Path,
    folder: &str,
    prompt: &str,
    out: &mut impl Write,
) -> Result<StopReason, Box<dyn Error>> {
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
    loop {
        let mut events = client.events(Some(id.into()), cursor.clone()).await?;
        let words = PromptContent::text(prompt);
        let mut turn = Box::pin(client.prompt(id.into(), words, None, None, None, Some(request.clone())));
        let ended = loop {
            let envelope = tokio::select! {
                biased;
                event = events.next() => match event {
                    Some(Ok(envelope)) => envelope,
                    _ => break (&mut turn).await,
                },
                ended = &mut turn => break ended,
            };
            cursor = Some(envelope.cursor);
            match envelope.event {
                Event::Update { update, .. } => {
                    let update: Value = serde_json::from_str(update.get())?;
                    write!(out, "{}", update["content"]["text"].as_str().unwrap_or_default())?;
                }
                Event::InterruptRaised { interrupt } => {
                    let asked: Value = serde_json::from_str(interrupt.request.get())?;
                    let mut options = asked["options"].as_array().into_iter().flatten();
                    let once = options.find(|option| option["kind"] == "allow_once");
                    let outcome = json!({"outcome": "selected", "optionId": once.ok_or("no way to allow it")?["optionId"]});
                    let outcome = RawJson::from_value(&outcome)?;
                    client
                        .respond(id.into(), interrupt.id, outcome, None, None)
                        .await?;
                }
                _ => {}
            }
        };
        drop(turn);
        match ended {
            Ok(turn) => return Ok(turn.stop_reason),
            // What the daemon answered stands; what was lost on the way is asked for again.
            Err(error @ ClientError::Call(_)) => return Err(error.into()),
            Err(_) => client = connect(socket).await?,
        }
    }
}
