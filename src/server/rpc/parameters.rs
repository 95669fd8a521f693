//! What callers give, where its type does not say all: limits, words, contents.

use bridge_protocol::Cursor;
use bridge_protocol::link::Fidelity;
use bridge_protocol::raw::PromptContent;
use bridge_protocol::rpc::RpcResult;
use jsonrpsee::types::ErrorObjectOwned;
use serde::Deserialize;

use super::errors::wire;
use crate::conversation::error::ConversationError;
use crate::conversation::history::Part;
use crate::transcript::checkpoint::PlaceRef;

/// Conversations on one page unless asked otherwise, and at most.
pub(super) const LIST_LIMITS: (u32, u32) = (50, 500);

/// Entries of the lineage on one page unless asked otherwise, and at most.
pub(super) const LINEAGE_LIMITS: (u32, u32) = (100, 1_000);

/// The least fidelity that will do. What a client reads leniently is not taken from it: a word that is not known asks
/// for something that would not be given.
pub(super) fn wanted(min_fidelity: Option<Fidelity>) -> RpcResult<Fidelity> {
    match min_fidelity {
        None => Ok(Fidelity::Text),
        Some(Fidelity::Unknown) => Err(unknown_word("minFidelity", "full, partial, text, none")),
        Some(fidelity) => Ok(fidelity),
    }
}

/// A place in a history.
pub(super) fn place(at: &str) -> RpcResult<PlaceRef> {
    at.parse().map_err(|_| {
        wire(&ConversationError::InvalidParams(
            "at must be the id of a checkpoint or of a message; conversation/checkpoints and conversation/history tell \
             which there are"
                .to_owned(),
        ))
    })
}

pub(super) fn unknown_word(parameter: &str, known: &str) -> ErrorObjectOwned {
    let what = format!("{parameter} must be one of {known}");
    wire(&ConversationError::InvalidParams(what))
}

/// Who answers a question, as others are told, when the caller does not say it.
const ANSWERER: &str = "client";

/// The words for a question that no client answers.
const NO_CLIENTS: [&str; 7] = ["agent", "cancel", "edit", "fork", "policy", "reset", "undo"];

/// How long a client's name may be, in characters.
const NAME_LIMIT: usize = 64;

/// Who answers a question, as others are told.
pub(super) fn answerer(by: Option<String>) -> Result<String, ConversationError> {
    let Some(by) = by else {
        return Ok(ANSWERER.to_owned());
    };
    let is_fit =
        !by.trim().is_empty() && by.chars().count() <= NAME_LIMIT && !by.chars().any(char::is_control);
    if !is_fit || NO_CLIENTS.contains(&by.as_str()) {
        return Err(ConversationError::InvalidParams(format!(
            "by must be a name of 1 to {NAME_LIMIT} characters, and none of {}",
            NO_CLIENTS.join(", ")
        )));
    }
    Ok(by)
}

/// Whether a prompt says nothing: no blocks, or nothing but texts of no length.
pub(super) fn is_empty(prompt: &PromptContent) -> bool {
    #[derive(Deserialize)]
    struct Text<'a> {
        r#type: &'a str,
        text: String,
    }
    prompt.as_blocks().iter().all(|block| {
        block
            .read::<Text<'_>>()
            .is_ok_and(|block| block.r#type == "text" && block.text.is_empty())
    })
}

/// Which part of a history is asked for, and how many messages of it.
pub(super) fn history_part(
    cursor: Option<Cursor>,
    limit: Option<u32>,
    last: Option<u32>,
) -> Result<(Part, usize), ConversationError> {
    let part = match (cursor, last) {
        (Some(_), Some(_)) => Err("cursor and last exclude each other: last begins at the end"),
        // Only the page has a limit then.
        (None, Some(last)) if limit.is_some() && last > 0 => {
            return Ok((
                Part::Newest(usize::try_from(last).unwrap_or(usize::MAX)),
                page_limit(limit, LINEAGE_LIMITS)?,
            ));
        }
        (Some(cursor), None) => Ok(Part::At(cursor)),
        (None, Some(_)) => Ok(Part::Last),
        (None, None) => Ok(Part::First),
    };
    let part = part.map_err(|words| ConversationError::InvalidParams(words.to_owned()))?;
    match last {
        Some(last) => {
            let hint = ", or have a limit beside it";
            Ok((part, within("last", last, LINEAGE_LIMITS.1, hint)?))
        }
        None => Ok((part, page_limit(limit, LINEAGE_LIMITS)?)),
    }
}

pub(super) fn page_limit(limit: Option<u32>, (usual, most): (u32, u32)) -> Result<usize, ConversationError> {
    within("limit", limit.unwrap_or(usual), most, "")
}

fn within(name: &str, value: u32, most: u32, hint: &str) -> Result<usize, ConversationError> {
    if value == 0 || value > most {
        return Err(ConversationError::InvalidParams(format!(
            "{name} must be between 1 and {most}{hint}, not {value}"
        )));
    }
    Ok(value as usize)
}
