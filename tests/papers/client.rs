//! The Rust client that README.md shows, word for word.

use std::error::Error;
use std::path::Path;

use bridge_protocol::client::connect;
use bridge_protocol::event::Event;
use bridge_protocol::raw::PromptContent;
use bridge_protocol::rpc::ConversationRpcClient as _;
use bridge_protocol::turn::TurnResult;

pub async fn hello(socket: &Path, cwd: &str) -> Result<TurnResult, Box<dyn Error>> {
    let client = connect(socket).await?;
    let title = Some("From Rust".to_owned());
    let made = client
        .create(None, cwd.to_owned(), title, None, None, None, None)
        .await?;
    let id = made.conversation.id;
    let mut events = client.events(Some(id.into()), None).await?;
    let turn = client.prompt(id.into(), PromptContent::text("Hello"), None, None, None, None);
    let show = async {
        while let Some(Ok(envelope)) = events.next().await {
            match envelope.event {
                Event::Update { update, .. } => println!("{}", update.get()),
                Event::TurnEnded { .. } => break,
                _ => {}
            }
        }
    };
    let (turn, ()) = tokio::join!(turn, show);
    Ok(turn?)
}
