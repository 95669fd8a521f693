//! The contract as an OpenRPC document, which `rpc.discover` answers.
//!
//! Made from the types of the wire and the table of methods, so that it describes what is served.

mod builder;
mod schemas;

use serde::{Deserialize, Serialize};

use crate::raw::RawJson;

pub use builder::document;

/// The version of OpenRPC that the document follows.
pub const OPENRPC_VERSION: &str = "1.3.2";

/// An OpenRPC document, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OpenRpcDocument(pub RawJson);

impl schemars::JsonSchema for OpenRpcDocument {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "OpenRpcDocument".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "An OpenRPC document.",
            "type": "object",
            "properties": {
                "openrpc": { "description": "The version of OpenRPC that it follows.", "const": OPENRPC_VERSION },
                "info": { "type": "object" },
                "methods": { "type": "array", "items": { "type": "object" } },
                "x-notifications": {
                    "description": "The notifications that the daemon sends. OpenRPC has no member for them.",
                    "type": "array",
                    "items": { "type": "object" },
                },
                "components": { "type": "object" },
            },
            "required": ["openrpc", "info", "methods"],
        })
    }
}
