//! The tree of conversations that forks connect, without unrelated ones.

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::TreeAnswer;
use bridge_protocol::method::TreeOf;
use serde_json::json;

use crate::home::Home;
use crate::support::App;

async fn tree(app: &App, id: ConversationId) -> TreeAnswer {
    app.answer(TreeOf {
        conversation_id: id.into(),
    })
    .await
}

fn ids(tree: &TreeAnswer) -> Vec<ConversationId> {
    let members = tree.conversations.iter();
    members.map(|member| member.conversation.id).collect()
}

async fn branch(app: &App, id: ConversationId) -> ConversationId {
    app.fork(id, false).await.unwrap().conversation.id
}

#[tokio::test]
async fn the_tree_of_each_member_is_the_whole_family_and_nobody_else() {
    let home = Home::new();
    let (_daemon, app, root) = home.begun(&["one"]).await;
    let stranger = app.begun(&home.project(), &["apart"]).await;
    assert_eq!(ids(&tree(&app, stranger).await), [stranger]);
    let older = branch(&app, root).await;
    let younger = branch(&app, root).await;
    app.send(older, "it is the newest now").await;
    let last = branch(&app, older).await;
    for id in [root, older, younger, last] {
        let tree = tree(&app, id).await;
        assert_eq!(ids(&tree), [root, older, younger, last]);
        assert_eq!((tree.missing_parent, tree.truncated), (None, false));
        for member in tree.conversations {
            let id = member.conversation.id;
            assert_eq!(member.conversation, app.get(id).await);
            assert_eq!(member.links, app.chain(id).await);
            assert_eq!(member.entries, app.lineage(id).await);
        }
    }
}

#[tokio::test]
async fn a_family_goes_on_without_its_first_conversation() {
    let home = Home::new();
    let (_daemon, app, root) = home.begun(&["one"]).await;
    let middle = branch(&app, root).await;
    app.send(middle, "two").await;
    let last = branch(&app, middle).await;
    app.ask("conversation/delete", root).await;
    for id in [middle, last] {
        let tree = tree(&app, id).await;
        assert_eq!(ids(&tree), [middle, last]);
        assert_eq!(tree.missing_parent, Some(root));
    }
    let gone = app.call("conversation/tree", json!({"conversationId": root}));
    assert!(gone.await.is_err());
}
