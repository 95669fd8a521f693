//! Finds the conversation for what a user typed: an id, a part of a title, or `.` for the current folder.

use bridge_protocol::conversation::Conversation;
use bridge_protocol::{ConversationId, ConversationRef};

use super::Registry;
use super::filter::Filter;
use crate::conversation::error::{Candidate, ConversationError, StoreFailure};

/// How many candidates the error for an ambiguous name lists.
pub(super) const CANDIDATES_LIMIT: usize = 16;

/// How many conversations whose titles contain a text are searched for one whose whole title it is.
const TITLES_LIMIT: usize = 1_000;

impl Registry {
    /// Finds a conversation by what a user typed in the folder `cwd`. If it belongs to that folder, `.` means it from now on.
    ///
    /// # Errors
    /// When there is none, several match, or it was deleted.
    pub async fn resolve_in_folder(
        &self,
        name: &str,
        cwd: Option<&str>,
    ) -> Result<Conversation, ConversationError> {
        let cwd = self.wanted_folder(cwd).await?;
        let id = match (name.trim(), &cwd) {
            (".", Some(cwd)) => self.last_used_in(cwd).await?,
            (".", None) => {
                let why = "cwd is needed for \".\": the absolute path of the folder";
                return Err(ConversationError::invalid("cwd", why));
            }
            (name, _) => match self.resolve(&ConversationRef::from(name)) {
                Err(ConversationError::NotFound { .. }) => self.find_by_title(name).await?,
                Err(ConversationError::Ambiguous { name, candidates, .. }) => {
                    return Err(self.ambiguous_error(&name, candidates));
                }
                found => found?,
            },
        };
        let conversation = self.salvaged_view(id)?;
        if let Some(cwd) = cwd.filter(|cwd| *cwd == conversation.cwd) {
            self.last_used.set(cwd, id).await;
        }
        Ok(conversation)
    }

    /// The conversation of a folder that was last used there, else the newest.
    async fn last_used_in(&self, cwd: &str) -> Result<ConversationId, ConversationError> {
        if let Some(id) = self.last_used.conversation_in(cwd) {
            match self.salvaged_view(id) {
                // A conversation that was moved away or deleted no longer counts.
                Ok(conversation) if conversation.cwd != cwd => {}
                Err(ConversationError::Deleted { .. } | ConversationError::NotFound { .. }) => {}
                found => return Ok(found?.id),
            }
        }
        let filter = Filter {
            cwd: Some(cwd.to_owned()),
            ..Filter::default()
        };
        let newest = self.find_page(&filter, None, 1).await?;
        let newest = newest.first().map(|(_, id)| *id);
        newest.ok_or_else(|| ConversationError::NotFound {
            what: format!("there is no conversation in the folder {cwd}"),
        })
    }

    /// The conversation with this title, else the only one whose title contains it.
    async fn find_by_title(&self, part: &str) -> Result<ConversationId, ConversationError> {
        let filter = Filter {
            title: Some(part.to_owned()),
            ..Filter::default()
        };
        let found = match part {
            // Every title contains an empty text.
            "" => Vec::new(),
            _ => self.find_page(&filter, None, TITLES_LIMIT).await?,
        };
        let mut exact = found.iter().filter(|(_, id)| {
            self.salvaged_view(*id)
                .is_ok_and(|found| found.title.trim() == part)
        });
        if let (Some((_, only)), None) = (exact.next(), exact.next()) {
            return Ok(*only);
        }
        match found.as_slice() {
            [] => match self.transcripts_with_prefix(part).await {
                // The typed text may be the id of a transcript in a folder that cannot be read now.
                Err(ConversationError::StoreFailed(failure)) if failure.is_transient => {
                    Err(ConversationError::StoreFailed(StoreFailure {
                        text: format!(
                            "no conversation matches \"{part}\", and the transcripts could not be searched: {failure}"
                        ),
                        ..failure
                    }))
                }
                // If the folders cannot be read, the error lists no transcripts.
                found => Err(ConversationError::NoConversation {
                    name: part.to_owned(),
                    transcripts: found.unwrap_or_default(),
                }),
            },
            [(_, only)] => Ok(*only),
            several => {
                let several = several.iter().take(CANDIDATES_LIMIT);
                Err(self.ambiguous_error(part, several.map(|(_, id)| *id)))
            }
        }
    }

    fn ambiguous_error(
        &self,
        name: &str,
        candidates: impl IntoIterator<Item = ConversationId>,
    ) -> ConversationError {
        let candidate = |id: ConversationId| Candidate {
            id: id.to_string(),
            title: self
                .salvaged_view(id)
                .map(|found| found.title)
                .unwrap_or_default(),
        };
        ConversationError::AmbiguousName {
            name: name.to_owned(),
            candidates: candidates.into_iter().map(candidate).collect(),
        }
    }
}
