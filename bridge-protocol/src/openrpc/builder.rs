//! The document, made from the table of methods.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::schemas::{Schemas, prose, sorted};
use super::{OPENRPC_VERSION, OpenRpcDocument};
use crate::PROTOCOL_VERSION;
use crate::error::{ErrorKind, WireError};
use crate::method::{self, Method, Subscribe, Visitor, parameter_names};
use crate::raw::RawJson;

/// What applies to all methods.
const DESCRIPTION: &str = "Conversations with coding agents, under ids that never change. JSON-RPC 2.0 over a Unix stream \
    socket, one message a line. Parameters are objects, by name; absent and null mean the same, an unknown parameter is \
    refused. Members, methods, events and words may be added, so clients should ignore what they do not know. Besides the \
    errors that it names, each method may answer with JSON-RPC's own, `invalidParams` and `internalError` among them.";

/// What ends a subscription. Its parameter is an array of one id.
const UNSUBSCRIBE: &str = "conversation/unsubscribe";

/// The OpenRPC document of all methods, events and errors.
///
/// # Errors
/// When a schema has no JSON form, which those of the wire's types have.
pub fn document() -> Result<OpenRpcDocument, serde_json::Error> {
    let mut builder = Builder::new();
    method::visit(&mut builder);
    builder.add_subscription();
    RawJson::from_value(&builder.into_document()).map(OpenRpcDocument)
}

#[derive(Serialize)]
struct Document {
    openrpc: &'static str,
    info: Value,
    methods: Vec<Entry>,
    /// OpenRPC knows no calls of the server.
    #[serde(rename = "x-notifications")]
    notifications: Vec<Entry>,
    components: Components,
}

#[derive(Serialize)]
struct Components {
    schemas: BTreeMap<String, Value>,
    errors: BTreeMap<String, Value>,
}

/// A method or a notification.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    name: &'static str,
    summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    param_structure: &'static str,
    params: Vec<Content>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Content>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<Value>,
    /// Of a subscription: what the daemon sends from then on.
    #[serde(rename = "x-notification", skip_serializing_if = "Option::is_none")]
    notification: Option<&'static str>,
    /// Of a subscription: what ends it.
    #[serde(rename = "x-unsubscribe", skip_serializing_if = "Option::is_none")]
    unsubscribe: Option<&'static str>,
}

/// A parameter or a result.
#[derive(Serialize)]
struct Content {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    required: bool,
    schema: Value,
}

struct Builder {
    schemas: Schemas,
    methods: Vec<Entry>,
    notifications: Vec<Entry>,
}

impl Visitor for Builder {
    fn method<M: Method>(&mut self) {
        let result = self.result::<M::Answer>();
        let entry = self.entry::<M>(result);
        self.methods.push(entry);
    }
}

impl Builder {
    fn new() -> Self {
        Self {
            schemas: Schemas::new(),
            methods: Vec::new(),
            notifications: Vec::new(),
        }
    }

    fn result<T: JsonSchema>(&mut self) -> Content {
        Content {
            name: T::schema_name().into_owned(),
            description: None,
            required: true,
            schema: self.schemas.told::<T>(),
        }
    }

    fn entry<M: Method>(&mut self, result: Content) -> Entry {
        let text = prose(M::ABOUT.iter().copied());
        let summary = text.split_inclusive(". ").next().unwrap_or_default().trim_end();
        let mut errors = M::ERRORS.to_vec();
        errors.push(ErrorKind::ShuttingDown);
        errors.sort_by_key(|kind| kind.code());
        errors.dedup();
        let reference =
            |kind: &ErrorKind| json!({ "$ref": format!("#/components/errors/{}", error_kind_name(*kind)) });
        Entry {
            name: M::NAME,
            summary: summary.to_owned(),
            description: (text != summary).then(|| text.clone()),
            param_structure: "by-name",
            params: self.params::<M>(),
            result: Some(result),
            errors: errors.iter().map(reference).collect(),
            ..Entry::default()
        }
    }

    /// The members of a method's struct, each a parameter.
    fn params<M: Method>(&mut self) -> Vec<Content> {
        let mut schema = self.schemas.members::<M>();
        let required: Vec<Value> = schema["required"].as_array().cloned().unwrap_or_default();
        let content = |name: String| {
            let mut schema = schema["properties"][&name].take();
            let description = schema
                .as_object_mut()
                .and_then(|members| members.remove("description"));
            // A reference stood in a list of its own to have a description beside it.
            if let Some([reference]) = schema["allOf"].as_array().map(Vec::as_slice) {
                schema = reference.clone();
            }
            Content {
                description: description.as_ref().and_then(Value::as_str).map(str::to_owned),
                required: required.iter().any(|required| *required == *name),
                name,
                schema,
            }
        };
        parameter_names::<M>().into_iter().map(content).collect()
    }

    /// The subscription to events, what the daemon sends for it, and the method that ends it.
    fn add_subscription(&mut self) {
        let id = |name: &str| Content {
            name: name.to_owned(),
            description: Some("The id of the subscription, on its connection. Opaque.".to_owned()),
            required: true,
            schema: sorted(json!({ "type": ["integer", "string"] })),
        };
        let entry = self.entry::<Subscribe>(id("subscription"));
        self.methods.push(Entry {
            notification: Some("conversation/event"),
            unsubscribe: Some(UNSUBSCRIBE),
            ..entry
        });
        self.methods.push(Entry {
            name: UNSUBSCRIBE,
            summary: format!("Ends a subscription of `{}`.", Subscribe::NAME),
            param_structure: "by-position",
            params: vec![id("subscription")],
            result: Some(Content {
                name: "ended".to_owned(),
                description: Some("Whether there was such a subscription.".to_owned()),
                required: true,
                schema: json!({ "type": "boolean" }),
            }),
            ..Entry::default()
        });
        let event = Content {
            name: "result".to_owned(),
            ..self.result::<<Subscribe as Method>::Answer>()
        };
        self.notifications.push(Entry {
            name: "conversation/event",
            summary: format!("Sent by the daemon to a subscription of `{}`.", Subscribe::NAME),
            param_structure: "by-name",
            params: vec![id("subscription"), event],
            ..Entry::default()
        });
    }

    fn into_document(mut self) -> Document {
        self.schemas.told::<WireError>();
        let mut schemas = self.schemas.definitions();
        name_events(&mut schemas);
        let errors = ErrorKind::ALL
            .map(|kind| (error_kind_name(kind), error(kind, schemas.get("ErrorKind"))))
            .into();
        Document {
            openrpc: OPENRPC_VERSION,
            info: sorted(json!({
                "title": "session-bridge",
                "version": PROTOCOL_VERSION.to_string(),
                "description": DESCRIPTION,
                "license": { "name": env!("CARGO_PKG_LICENSE") },
            })),
            methods: self.methods,
            notifications: self.notifications,
            components: Components { schemas, errors },
        }
    }
}

/// Gives each kind of event a schema of its own: `snapshot` becomes `SnapshotEvent`.
fn name_events(schemas: &mut BTreeMap<String, Value>) {
    let Some(Value::Array(kinds)) = schemas.get_mut("Event").map(|event| event["anyOf"].take()) else {
        return;
    };
    let mut references = Vec::new();
    for schema in kinds {
        let kind = schema["properties"]["type"]["const"].as_str().unwrap_or_default();
        let (first, rest) = kind.split_at(kind.len().min(1));
        let name = format!("{}{rest}Event", first.to_uppercase());
        references.push(json!({ "$ref": format!("#/components/schemas/{name}") }));
        schemas.insert(name, schema);
    }
    if let Some(event) = schemas.get_mut("Event") {
        event["anyOf"] = references.into();
    }
}

/// A kind of error as the wire has it.
fn error_kind_name(kind: ErrorKind) -> String {
    let word = serde_json::to_value(kind).unwrap_or_default();
    word.as_str().unwrap_or_default().to_owned()
}

/// Stands for all errors of a kind; the messages of real ones say more. The schema of the kinds describes each. Its `data` has
/// the members that all of the kind have.
fn error(kind: ErrorKind, kinds: Option<&Value>) -> Value {
    let word = error_kind_name(kind);
    let described = kinds.and_then(|kinds| {
        let each = kinds["oneOf"].as_array()?;
        let of_kind = each.iter().find(|each| each["const"] == word.as_str())?;
        of_kind["description"].as_str()
    });
    let mut data = json!({ "kind": word });
    if !kind.tells_retryable() {
        data["retryable"] = kind.usually_retryable().into();
    }
    sorted(json!({
        "code": kind.code(),
        "message": described.unwrap_or(&word),
        "data": data,
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    #[test]
    fn each_name_means_one_schema() {
        let mut builder = Builder::new();
        method::visit(&mut builder);
        let ambiguous = builder.schemas.ambiguous();
        assert!(ambiguous.is_empty(), "{ambiguous:?}");
    }

    #[test]
    fn each_parameter_is_described_and_each_optional_one_states_its_default() {
        let mut builder = Builder::new();
        method::visit(&mut builder);
        builder.add_subscription();
        let params = builder
            .methods
            .iter()
            .flat_map(|method| method.params.iter().map(move |param| (method.name, param)));
        let mut described = 0;
        for (method, param) in params {
            let words = param.description.as_deref().unwrap_or_default();
            assert!(!words.is_empty(), "{method} does not describe {}", param.name);
            let says_default = ["Default: ", "Needed ", "Either "]
                .iter()
                .any(|how| words.contains(how));
            assert_eq!(param.required, !says_default, "{method} {}: {words}", param.name);
            described += 1;
        }
        assert!(described > 100, "{described}");
    }
}
