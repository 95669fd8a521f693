//! Exports and imports of conversations between daemons with a real adapter.

use bridge_protocol::method::{Export, Import};
use std::path::{Path, PathBuf};

use bridge_protocol::conversation::Conversation;
use bridge_protocol::export::{ExportAnswer, ExportFormat, PortableConversation};
use bridge_protocol::history::Message;
use bridge_protocol::{BridgeError, ConversationId};

use crate::bridge_of::{Bridge, path_text};
use crate::support::lab::Agent;

impl<A: Agent> Bridge<A> {
    /// Exports a conversation as a bundle and checks that nothing is missing from it.
    pub(crate) fn bundle(&self, id: ConversationId) -> PathBuf {
        match self.exported(id, ExportFormat::Bundle) {
            ExportAnswer::File(file) => {
                assert_eq!(file.missing, []);
                file.path.into()
            }
            ExportAnswer::Json(_) => panic!("a bundle was requested, but JSON was returned"),
        }
    }

    /// Exports a conversation as JSON, the form for other programs.
    pub(crate) fn portable(&self, id: ConversationId) -> PortableConversation {
        match self.exported(id, ExportFormat::Json) {
            ExportAnswer::Json(portable) => *portable,
            ExportAnswer::File(file) => panic!("JSON was requested, but a file was returned: {file:?}"),
        }
    }

    fn exported(&self, id: ConversationId, format: ExportFormat) -> ExportAnswer {
        self.answer(Export {
            conversation_id: id.into(),
            format,
            ..Default::default()
        })
    }

    /// Imports the conversation of a bundle into a folder.
    pub(crate) fn import(
        &self,
        bundle: &Path,
        folder: &Path,
        new_ids: bool,
    ) -> Result<Conversation, BridgeError> {
        let answer = self.call(Import {
            path: path_text(bundle),
            cwd: Some(path_text(folder)),
            new_ids,
            ..Default::default()
        })?;
        assert_eq!(answer.missing, []);
        Ok(answer.conversation)
    }
}

/// A history without its ids, which differ after an import into another home.
pub(crate) fn without_ids(mut history: Vec<Message>) -> Vec<Message> {
    for message in &mut history {
        message.id = "m".into();
        message.checkpoint_id = None;
        message.upstream_id = "s".into();
    }
    history
}
