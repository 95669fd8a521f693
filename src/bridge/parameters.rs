//! Checks of parameters beyond their types: limits, unknown words and contents.

use bridge_protocol::Cursor;
use bridge_protocol::link::Fidelity;
use bridge_protocol::raw::PromptContent;
use serde::Deserialize;

use crate::conversation::error::ConversationError;
use crate::conversation::history::PageStart;
use crate::transcript::checkpoint::PlaceRef;

/// The default and maximum number of conversations on a page.
pub(super) const LIST_LIMITS: (u32, u32) = (50, 500);

/// The default and maximum number of lineage entries on a page.
pub(super) const LINEAGE_LIMITS: (u32, u32) = (100, 1_000);

/// Refuses an unknown fidelity. Clients accept unknown words in answers; the daemon does not accept them in parameters.
pub(super) fn check_fidelity(min_fidelity: Fidelity) -> Result<(), ConversationError> {
    match min_fidelity {
        Fidelity::Unknown => Err(unknown_word("minFidelity", "full, partial, text, none")),
        _ => Ok(()),
    }
}

/// Parses a place in a history.
pub(super) fn parse_place(at: &str) -> Result<PlaceRef, ConversationError> {
    at.parse()
        .map_err(|_| ConversationError::invalid("at", "at must be the id of a checkpoint or of a message"))
}

pub(super) fn unknown_word(parameter: &'static str, known: &str) -> ConversationError {
    ConversationError::invalid(parameter, format!("{parameter} must be one of {known}"))
}

/// The name reported for a client that answers a question without giving one.
const DEFAULT_ANSWERER: &str = "client";

/// The names that are reserved for questions that no client answered.
const RESERVED_ANSWERERS: [&str; 7] = ["agent", "cancel", "edit", "fork", "policy", "reset", "undo"];

/// The maximum length of a client's name, in characters.
const NAME_LIMIT: usize = 64;

/// The name that other clients see for the client that answers a question.
pub(super) fn answerer(by: Option<String>) -> Result<String, ConversationError> {
    let Some(by) = by else {
        return Ok(DEFAULT_ANSWERER.to_owned());
    };
    let is_valid =
        !by.trim().is_empty() && by.chars().count() <= NAME_LIMIT && !by.chars().any(char::is_control);
    if !is_valid || RESERVED_ANSWERERS.contains(&by.as_str()) {
        let reserved = RESERVED_ANSWERERS.join(", ");
        let why = format!("by must be a name of 1 to {NAME_LIMIT} characters, and none of {reserved}");
        return Err(ConversationError::invalid("by", why));
    }
    Ok(by)
}

/// Refuses a prompt without content: no blocks, or only empty texts.
pub(super) fn check_prompt(parameter: &'static str, prompt: &PromptContent) -> Result<(), ConversationError> {
    #[derive(Deserialize)]
    struct Text<'a> {
        r#type: &'a str,
        text: String,
    }
    let is_empty = prompt.as_blocks().iter().all(|block| {
        block
            .read::<Text<'_>>()
            .is_ok_and(|block| block.r#type == "text" && block.text.is_empty())
    });
    if is_empty {
        return Err(ConversationError::invalid(parameter, "the prompt has no content"));
    }
    Ok(())
}

/// The requested part of a history, and the number of messages.
pub(super) fn history_part(
    cursor: Option<Cursor>,
    limit: Option<u32>,
    last: Option<u32>,
) -> Result<(PageStart, usize), ConversationError> {
    let part = match (cursor, last) {
        (Some(_), Some(_)) => {
            let why = "cursor and last cannot be combined, because last begins at the end";
            return Err(ConversationError::invalid("last", why));
        }
        (Some(cursor), None) => PageStart::Cursor(cursor),
        (None, None) => PageStart::Beginning,
        // In this case only the page has a limit.
        (None, Some(last @ 1..)) if limit.is_some() => PageStart::Newest(last as usize),
        (None, Some(last)) => {
            let hint = " unless limit is given too";
            return Ok((PageStart::End, check_limit("last", last, LINEAGE_LIMITS.1, hint)?));
        }
    };
    Ok((part, page_limit(limit, LINEAGE_LIMITS)?))
}

pub(super) fn page_limit(limit: Option<u32>, (usual, most): (u32, u32)) -> Result<usize, ConversationError> {
    check_limit("limit", limit.unwrap_or(usual), most, "")
}

fn check_limit(
    parameter: &'static str,
    value: u32,
    maximum: u32,
    hint: &str,
) -> Result<usize, ConversationError> {
    if value == 0 || value > maximum {
        let why = format!("{parameter} must be between 1 and {maximum}{hint}, not {value}");
        return Err(ConversationError::invalid(parameter, why));
    }
    Ok(value as usize)
}
