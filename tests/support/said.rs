//! What a model was given, piece by piece, whoever's model it is.

/// One thing that the model was given, with whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) role: String,
    pub(crate) what: What,
}

/// One content block, in the terms of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Text(String),
    Thinking(String),
    ToolUse(String),
    ToolResult(String),
    Other(String),
}

/// A text of a person.
pub(crate) fn user(text: &str) -> Said {
    Said {
        role: "user".into(),
        what: What::Text(text.into()),
    }
}

/// A text of the model.
pub(crate) fn model(text: &str) -> Said {
    Said {
        role: "assistant".into(),
        what: What::Text(text.into()),
    }
}

/// A tool call of the model.
pub(crate) fn tool_use(name: &str) -> Said {
    Said {
        role: "assistant".into(),
        what: What::ToolUse(name.into()),
    }
}

/// What a tool gave back.
pub(crate) fn tool_result(text: &str) -> Said {
    Said {
        role: "user".into(),
        what: What::ToolResult(text.into()),
    }
}
