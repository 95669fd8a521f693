//! The pieces of a request that a model received, for any API.

/// One piece of a request and the role it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) role: String,
    pub(crate) what: What,
}

/// The content of one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Text(String),
    Thinking(String),
    ToolUse(String),
    ToolResult(String),
    Other(String),
}

/// A text of the user.
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

/// The result of a tool.
pub(crate) fn tool_result(text: &str) -> Said {
    Said {
        role: "user".into(),
        what: What::ToolResult(text.into()),
    }
}
