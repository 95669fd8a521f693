//! The sessions that a transcript came from, as far as files say it: a fork, or what older versions of an agent resumed in a
//! new file. Blocks.
//!
//! Owns when such a session counts: its transcript is there and ends with the place. One that has gone on is a branch beside
//! this one, which may be a conversation by itself: it is named and not taken along. A place in what it had from yet another
//! session is named in that one, so that a turn which was left out there does not come back. Knows no conversations.

use std::path::PathBuf;

use bridge_protocol::UpstreamId;
use bridge_protocol::export::MissingSession;

use super::Held;
use crate::chain::CHAIN_LIMIT;
use crate::conversation::copies;
use crate::conversation::services::chain_text;
use crate::transcript::TranscriptError;
use crate::transcript::library::Library;
use crate::transcript::opened::Opened;
use crate::transcript::origin::{ForkedFrom, Origin, Whose};
use crate::transcript::rollouts;
use crate::transcript::shelf::Format;

/// How many transcripts are looked at for one past. Each generation needs one, or two where a branch was made off the part that
/// a branch had carried over.
const LOOKED_AT_LIMIT: usize = 4 * CHAIN_LIMIT;

/// A session, and what its transcript says of it.
pub(super) struct Told {
    pub(super) upstream_id: UpstreamId,
    pub(super) origin: Origin,
}

/// A session with those that it came from.
pub(super) struct Past {
    /// The session itself, and before it what it came from: nearest first, as many as a chain holds.
    pub(super) sessions: Vec<Told>,
    /// The one in which this ends, where its transcript is not there or is of no use.
    pub(super) missing: Option<MissingSession>,
}

/// Follows what the files say, from a session whose transcript was read.
pub(super) fn past(library: &Library, held: &Held, own: Origin) -> Past {
    let mut past = Past {
        sessions: Vec::new(),
        missing: None,
    };
    let mut seen = vec![held.id.as_str().to_owned()];
    let mut session = Some(Told {
        upstream_id: held.id.clone(),
        origin: own,
    });
    while let Some(mut told) = session.take() {
        if let Some(from) = told.origin.forked_from.take() {
            // The place is named as far back as the files tell, also where what is there is of no use.
            let found = follow(library, held, &mut seen, from, &mut told.origin.forked_from);
            match found {
                Ok(found) if past.sessions.len() + 1 < CHAIN_LIMIT => session = found,
                Ok(_) => {}
                Err(detail) => {
                    let from = told.origin.forked_from.as_ref();
                    past.missing = from.map(|from| MissingSession {
                        upstream_id: from.session_id.as_str().into(),
                        agent: held.entry.name.clone(),
                        detail: format!("{} came from it: {detail}", told.upstream_id),
                    });
                }
            }
        }
        past.sessions.push(told);
    }
    past
}

/// The session in which a place was written first, which goes into `named` with the place; none where it has gone on from
/// there, and where no place is known, so that nobody can say how much of it came along. Or what is wrong with it, in words.
fn follow(
    library: &Library,
    held: &Held,
    seen: &mut Vec<String>,
    from: ForkedFrom,
    named: &mut Option<ForkedFrom>,
) -> Result<Option<Told>, String> {
    let mut from = named.insert(from).clone();
    loop {
        let id = from.session_id.clone();
        if seen.contains(&id) {
            return Err("the transcripts name each other in a circle".to_owned());
        }
        if seen.len() >= LOOKED_AT_LIMIT {
            return Err(format!("its past is in more than {LOOKED_AT_LIMIT} transcripts"));
        }
        // Ids are trimmed where they are kept.
        if id.trim() != id {
            return Err("no session has such an id".to_owned());
        }
        seen.push(id.clone());
        let upstream_id = UpstreamId::new(id.as_str());
        let origin = match held.format {
            Format::Codex => {
                let read = rollouts::origin(&held.root, &id).map_err(|error| chain_text(&error))?;
                let Some(turn) = &from.record_uuid else {
                    return Ok(None);
                };
                let upto = Opened::codex(library, &held.root, &id, Some((&id, turn)));
                if upto.map_err(|error| chain_text(&error))?.turns() < read.turns {
                    return Ok(None);
                }
                read
            }
            Format::Claude => {
                let (path, origin) = transcript(library, held, &id)?;
                let Some(uuid) = &from.record_uuid else {
                    return Ok(None);
                };
                match library.whose(&path, uuid).map_err(|error| chain_text(&error))? {
                    Whose::Own => {
                        let index = library.index(&path).map_err(|error| chain_text(&error))?;
                        let upto = index.select(Some(uuid), true);
                        if upto.is_some_and(|upto| upto.prompt_offsets().len() < origin.turns) {
                            return Ok(None);
                        }
                        origin
                    }
                    Whose::Copied(further) => {
                        from = named.insert(further).clone();
                        continue;
                    }
                    Whose::Nobodys => {
                        return Err(format!("{} does not hold the place any more", path.display()));
                    }
                }
            }
        };
        if origin.turns == 0 {
            return Err("its transcript holds no turn that could be resumed".to_owned());
        }
        return Ok(Some(Told { upstream_id, origin }));
    }
}

fn transcript(library: &Library, held: &Held, id: &str) -> Result<(PathBuf, Origin), String> {
    copies::find_recorded(library, &held.root, &UpstreamId::new(id)).map_err(|error| match error {
        TranscriptError::NotFound { .. } => "there is no transcript of it".to_owned(),
        error => chain_text(&error),
    })
}
