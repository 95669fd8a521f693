//! Transcripts whose records name each other as parents in a circle.

use bridge_protocol::ConversationId;
use bridge_protocol::error::ErrorKind;
use serde_json::json;

use super::bad_transcripts::{adopt, put, turns};
use crate::home::Home;
use crate::support::{App, id_in, refused};

/// The prompts of the turns that the history lists.
async fn prompts(app: &App, id: ConversationId) -> Vec<String> {
    let listed = app.checkpoints(id).await.into_iter();
    listed.map(|checkpoint| checkpoint.prompt).collect()
}

/// The first record names the last one as its parent, or the last reply has the id of the first one. A fork or an edit still
/// keeps only the turns before it.
#[tokio::test]
async fn a_circle_adds_no_later_turn_to_a_fork_or_an_edit() {
    let circles = [
        (r#""parentUuid":null"#, r#""parentUuid":"a3""#),
        (r#""uuid":"a3""#, r#""uuid":"a0""#),
        (r#""parentUuid":"a0""#, r#""parentUuid":"a2""#),
    ];
    for (number, (from, to)) in circles.into_iter().enumerate() {
        let home = Home::new();
        let (_daemon, app) = home.opened().await;
        let upstream_id = format!("circle-{number}");
        let whole = turns(&home, &upstream_id, 4);
        put(&home, &upstream_id, whole.replacen(from, to, 1));
        let id: ConversationId = adopt(&app, &upstream_id).await.parse().unwrap();
        let all = prompts(&app, id).await;
        assert!(all.len() >= 3 && all.last().unwrap() == "ask 3", "{all:?}");
        for (index, checkpoint) in app.checkpoints(id).await.into_iter().enumerate() {
            let at = checkpoint.id;
            let fork = json!({"conversationId": id, "at": at});
            let fork = id_in(&app.call("conversation/fork", fork).await.unwrap());
            assert_eq!(
                prompts(&app, fork).await,
                all[..=index],
                "{to}: a fork at {index}"
            );
            assert_eq!(
                app.remembered(fork).await,
                all[..=index],
                "{to}: a fork at {index}"
            );
            let edit = json!({"conversationId": id, "at": at, "prompt": "better"});
            let edited = app.call("conversation/edit", edit).await;
            if index == 0 {
                // Something may be missing before the first turn.
                let error = refused(edited, ErrorKind::TranscriptDamaged);
                assert!(error.message.contains("check circle-"), "{error:?}");
                continue;
            }
            edited.unwrap();
            let expected = [&all[..index], &["better".to_owned()]].concat();
            assert_eq!(app.remembered(id).await, expected, "{to}: an edit of {index}");
            app.ask("conversation/undo", id).await;
            assert_eq!(prompts(&app, id).await, all, "{to}: undone");
        }
    }
}
