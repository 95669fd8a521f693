//! The document, made of what the methods' declarations hand over.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::docs::{Docs, word};
use super::schemas::{Schemas, sorted};
use super::{OPENRPC_VERSION, OpenRpcDocument};
use crate::PROTOCOL_VERSION;
use crate::error::{BridgeError, ErrorKind};
use crate::raw::RawJson;

/// What cannot be said of a method.
const DESCRIPTION: &str = "Conversations with coding agents, under ids that never change. JSON-RPC 2.0 over a Unix stream \
    socket, one message a line. Parameters are objects, by name; an absent member and null mean the same, unknown ones \
    are ignored. Members, methods, events and words may be added, so clients pass by what they do not know. Beside the errors that it \
    names each method may answer with JSON-RPC's own, `invalidParams` and `internalError` among them.";

/// The OpenRPC document of everything that the daemon can be asked and says.
///
/// # Errors
/// When a schema has no JSON form, which those of the wire's types have.
pub fn document() -> Result<OpenRpcDocument, serde_json::Error> {
    let mut methods = Methods::new();
    crate::rpc::describe(&mut methods);
    RawJson::from_value(&methods.into_document()).map(OpenRpcDocument::new)
}

#[derive(Serialize)]
struct Document {
    openrpc: &'static str,
    info: Value,
    methods: Vec<Method>,
    /// OpenRPC knows no calls of the server.
    #[serde(rename = "x-notifications")]
    notifications: Vec<Method>,
    components: Components,
}

#[derive(Serialize)]
struct Components {
    schemas: BTreeMap<String, Value>,
    errors: BTreeMap<String, Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Method {
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
pub(crate) struct Content {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    required: bool,
    schema: Value,
}

/// The methods as far as they have been told.
pub(crate) struct Methods {
    schemas: Schemas,
    methods: Vec<Method>,
    notifications: Vec<Method>,
    /// What doc comments say that fits nothing: names of parameters and errors.
    unfit: Vec<String>,
}

impl Methods {
    fn new() -> Self {
        Self {
            schemas: Schemas::new(),
            methods: Vec::new(),
            notifications: Vec::new(),
            unfit: Vec::new(),
        }
    }

    /// A parameter: its name on the wire, and its type as it is written. One that is an `Option` may be left out.
    pub(crate) fn param<T: JsonSchema>(&mut self, name: &str, written: &str) -> Content {
        Content {
            name: name.to_owned(),
            description: None,
            required: !written.starts_with("Option"),
            schema: self.schemas.taken::<T>(),
        }
    }

    /// A method and what it answers.
    pub(crate) fn add<R: JsonSchema>(&mut self, name: &'static str, docs: &[&str], params: Vec<Content>) {
        let result = Content {
            name: R::schema_name().into_owned(),
            description: None,
            required: true,
            schema: self.schemas.told::<R>(),
        };
        let method = self.method(name, Docs::read(docs), params, result);
        self.methods.push(method);
    }

    /// A subscription, what the daemon sends for it, and the method that ends it, which takes its id by its place.
    pub(crate) fn add_subscription<T: JsonSchema>(
        &mut self,
        name: &'static str,
        notification: &'static str,
        unsubscribe: &'static str,
        docs: &[&str],
        params: Vec<Content>,
    ) {
        let id = |name: &str| Content {
            name: name.to_owned(),
            description: Some("Names the subscription on its connection. Opaque.".to_owned()),
            required: true,
            schema: sorted(json!({ "type": ["integer", "string"] })),
        };
        let method = self.method(name, Docs::read(docs), params, id("subscription"));
        self.methods.push(Method {
            notification: Some(notification),
            unsubscribe: Some(unsubscribe),
            ..method
        });

        let ended = Content {
            name: "ended".to_owned(),
            description: Some("Whether there was such a subscription.".to_owned()),
            required: true,
            schema: json!({ "type": "boolean" }),
        };
        let prose = format!("Ends a subscription that `{name}` made.");
        let docs = Docs {
            params: [(
                "subscription".to_owned(),
                "The id that the subscription was answered with.".to_owned(),
            )]
            .into(),
            prose,
            ..Docs::default()
        };
        let method = self.method(unsubscribe, docs, vec![id("subscription")], ended);
        self.methods.push(Method {
            param_structure: "by-position",
            errors: Vec::new(),
            ..method
        });

        let item = Content {
            name: "result".to_owned(),
            description: None,
            required: true,
            schema: self.schemas.told::<T>(),
        };
        let docs = format!("Sent by the daemon to a subscription that `{name}` made.");
        self.notifications.push(Method {
            name: notification,
            summary: docs,
            description: None,
            param_structure: "by-name",
            params: vec![id("subscription"), item],
            result: None,
            errors: Vec::new(),
            notification: None,
            unsubscribe: None,
        });
    }

    fn method(
        &mut self,
        name: &'static str,
        mut docs: Docs,
        mut params: Vec<Content>,
        result: Content,
    ) -> Method {
        for param in &mut params {
            param.description = docs.take_param(&param.name);
        }
        self.unfit.extend(docs.params.into_keys().chain(docs.unknown));
        docs.errors.push(ErrorKind::ShuttingDown);
        docs.errors.sort_by_key(|kind| kind.code());
        docs.errors.dedup();
        let reference = |kind: &ErrorKind| json!({ "$ref": format!("#/components/errors/{}", word(*kind)) });
        let summary = docs
            .prose
            .split_inclusive(". ")
            .next()
            .unwrap_or_default()
            .trim_end();
        Method {
            name,
            summary: summary.to_owned(),
            description: (docs.prose != summary).then(|| docs.prose.clone()),
            param_structure: "by-name",
            params,
            result: Some(result),
            errors: docs.errors.iter().map(reference).collect(),
            notification: None,
            unsubscribe: None,
        }
    }

    fn into_document(mut self) -> Document {
        self.schemas.told::<BridgeError>();
        let schemas = self.schemas.definitions();
        let errors = ErrorKind::ALL
            .map(|kind| (word(kind), error(kind, schemas.get("ErrorKind"))))
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

/// What stands in for all errors of a kind; the messages of real ones say more. The schema of the kinds describes each.
/// Its `data` has what all of the kind have.
fn error(kind: ErrorKind, kinds: Option<&Value>) -> Value {
    let word = word(kind);
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
        let mut methods = Methods::new();
        crate::rpc::describe(&mut methods);
        let ambiguous = methods.schemas.ambiguous();
        assert!(ambiguous.is_empty(), "{ambiguous:?}");
    }

    #[test]
    fn each_parameter_is_described_and_each_description_fits() {
        let mut methods = Methods::new();
        crate::rpc::describe(&mut methods);
        assert_eq!(methods.unfit, Vec::<String>::new());
        let params = methods
            .methods
            .iter()
            .flat_map(|method| method.params.iter().map(move |param| (method.name, param)));
        let mut described = 0;
        for (method, param) in params {
            assert!(
                param.description.as_ref().is_some_and(|words| !words.is_empty()),
                "{method} says nothing of {}",
                param.name
            );
            // One that may be left out says what that means.
            let words = param.description.as_deref().unwrap_or_default();
            let says_default = ["Default: ", "Needed ", "Either "]
                .iter()
                .any(|how| words.contains(how));
            assert_eq!(param.required, !says_default, "{method} {}: {words}", param.name);
            described += 1;
        }
        assert!(described > 100, "{described}");
    }
}
