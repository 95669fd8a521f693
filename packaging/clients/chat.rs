//! A turn with an agent: `cargo run --example chat -- SOCKET FOLDER PROMPT`
//! Lists the newest conversations, makes one in FOLDER, streams the answer, and allows once what is asked.
//! A lost connection begins it all again: by its request id a call happens once, events go on at the cursor.
//! Elsewhere it needs `bridge-protocol` with the feature `client`, `serde_json`, `tokio` and `uuid`.
#![expect(clippy::print_stdout, reason = "it is there to be read")]

use bridge_protocol::client::Call as _;
use bridge_protocol::method::{
    GetConversation, ListConversations, NewConversation, Prompt, Respond, Subscribe,
};
use std::error::Error;
use std::io::{Write as _, stdout};
use std::time::Duration;

use bridge_protocol::client::{Client, ClientError, connect};
use bridge_protocol::event::Event;
use bridge_protocol::raw::PromptContent;
use bridge_protocol::turn::{Interrupt, TurnResult};
use bridge_protocol::{ConversationId, ErrorKind};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, folder, prompt] = arguments.as_slice() else {
        return Err("usage: chat SOCKET FOLDER PROMPT".into());
    };
    let request_id = Some(uuid::Uuid::new_v4().to_string());
    let (mut listed, mut cursor, mut tries) = (false, None, 0);
    let turn = loop {
        let attempt = async {
            let client = connect(socket.as_ref()).await?;
            if !listed {
                let newest = client.call(ListConversations {
                    limit: Some(5),
                    ..Default::default()
                });
                for known in newest.await?.conversations {
                    println!("{} {}", known.id, known.title);
                }
                listed = true;
            }
            let made = client.call(NewConversation {
                cwd: folder.clone(),
                request_id: request_id.clone(),
                ..Default::default()
            });
            let id = made.await?.conversation.id;
            let mut events = client
                .events(Subscribe {
                    conversation_id: Some(id.into()),
                    after: cursor.clone(),
                })
                .await?;
            for question in client
                .call(GetConversation {
                    conversation_id: id.into(),
                })
                .await?
                .conversation
                .interrupts
            {
                answer(&client, id, question).await?; // An answer may have been lost too.
            }
            tries = 0;
            let words = PromptContent::text(prompt);
            let mut turn = Box::pin(client.call(Prompt {
                conversation_id: id.into(),
                prompt: words,
                request_id: request_id.clone(),
                ..Default::default()
            }));
            loop {
                let envelope = tokio::select! {
                    biased; // What the agent says comes before the turn's end.
                    event = events.next() => match event {
                        Some(event) => event?,
                        None => tokio::select! {
                            biased; // The daemon may have answered before it hung up.
                            turn = &mut turn => return Ok(turn?),
                            () = std::future::ready(()) => return Err("it hung up, or events came too fast".into()),
                        },
                    },
                    turn = &mut turn => return Ok(turn?),
                };
                cursor = Some(envelope.cursor);
                match envelope.event {
                    Event::Update { update, .. } => {
                        let update: Value = update.read()?;
                        if update["sessionUpdate"] == "agent_message_chunk" {
                            print!("{}", update["content"]["text"].as_str().unwrap_or_default());
                            stdout().flush()?;
                        }
                    }
                    Event::InterruptRaised { interrupt } => answer(&client, id, interrupt).await?,
                    Event::Lagged { .. } => return Err("events came too fast".into()),
                    _ => {}
                }
            }
        };
        let attempt: Result<TurnResult, Box<dyn Error>> = attempt.await;
        match attempt {
            Ok(turn) => break turn,
            Err(error) if tries == 30 || is_refusal(&*error) => return Err(error),
            // The daemon may just be starting again.
            Err(_) => tokio::time::sleep(Duration::from_secs(tries.min(1))).await,
        }
        tries += 1;
    };
    println!("\n{}", json!(turn.stop_reason).as_str().unwrap_or_default());
    turn.failure.map_or(Ok(()), |failure| Err(failure.message.into()))
}

async fn answer(client: &Client, id: ConversationId, question: Interrupt) -> Result<(), Box<dyn Error>> {
    let Some(options) = question.options else {
        return Ok(()); // It does not ask for a permission.
    };
    let options: Vec<Value> = options.read()?;
    let outcome = match options.iter().find(|option| option["kind"] == "allow_once") {
        Some(once) => json!({"outcome": "selected", "optionId": once["optionId"]}),
        None => json!({"outcome": "cancelled"}),
    };
    client
        .call(Respond {
            conversation_id: id.into(),
            interrupt_id: question.id,
            outcome: outcome.into(),
            ..Default::default()
        })
        .await?;
    Ok(())
}

fn is_refusal(error: &(dyn Error + 'static)) -> bool {
    // Another client's answer was first; the daemon is about to hang up.
    let passing = [ErrorKind::InterruptResolved, ErrorKind::ShuttingDown].map(ErrorKind::code);
    matches!(error.downcast_ref(), Some(ClientError::Call(answer)) if !passing.contains(&answer.code()))
}
