//! Unparsed JSON of agents and apps, passed through byte for byte.

use derive_more::Debug;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// A JSON value, kept as the bytes that were received.
///
/// Numbers keep their digits, objects their unknown fields and the order of their keys. Two values are equal if their
/// bytes are.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[debug("{_0}")]
#[serde(transparent)]
#[schemars(inline, description = "")]
pub struct RawJson(#[schemars(with = "serde_json::Value")] Box<RawValue>);

impl RawJson {
    /// Wraps a value that serde has already checked.
    #[must_use]
    pub fn new(value: Box<RawValue>) -> Self {
        Self(value)
    }

    /// Creates a value from text, which has to be one JSON value.
    ///
    /// # Errors
    /// If the text is not JSON.
    pub fn from_text(text: String) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text).map(Self)
    }

    /// Serializes a value to JSON.
    ///
    /// # Errors
    /// If the value cannot be JSON, such as a map whose keys are not text.
    pub fn from_value<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// The JSON text.
    #[must_use]
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// The value as serde_json's own type.
    #[must_use]
    pub fn as_raw(&self) -> &RawValue {
        &self.0
    }

    /// Converts into serde_json's own type.
    #[must_use]
    pub fn into_raw(self) -> Box<RawValue> {
        self.0
    }

    /// Deserializes the value.
    ///
    /// # Errors
    /// If the value does not fit the type.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.0.get())
    }
}

impl Default for RawJson {
    /// Returns null.
    fn default() -> Self {
        Self(RawValue::NULL.to_owned())
    }
}

impl From<serde_json::Value> for RawJson {
    fn from(value: serde_json::Value) -> Self {
        // Cannot fail: the keys of a `Value` are text, and its numbers are JSON numbers.
        Self::from_value(&value).unwrap_or_default()
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for RawJson {}

/// A prompt: ACP's content blocks, byte for byte. On the wire an array of blocks, or a string, which is one text block.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize)]
#[serde(transparent)]
pub struct PromptContent(Vec<RawJson>);

impl PromptContent {
    /// A prompt of one text block.
    #[must_use]
    pub fn text(text: &str) -> Self {
        let text = serde_json::Value::from(text);
        let block = format!(r#"{{"type":"text","text":{text}}}"#);
        // Cannot fail: a JSON string is valid as a member of an object.
        Self(RawJson::from_text(block).into_iter().collect())
    }

    /// A prompt of these content blocks.
    #[must_use]
    pub fn blocks(blocks: Vec<RawJson>) -> Self {
        Self(blocks)
    }

    /// The content blocks, in order.
    #[must_use]
    pub fn as_blocks(&self) -> &[RawJson] {
        &self.0
    }

    /// The text of all text blocks, joined by line breaks.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.texts().collect::<Vec<_>>().join("\n")
    }

    /// The text of each text block.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        #[derive(Deserialize)]
        struct Block {
            #[serde(default)]
            text: Option<String>,
        }
        let text = |block: &RawJson| block.read::<Block>().ok().and_then(|block| block.text);
        self.0.iter().filter_map(text)
    }

    /// Whether its last content blocks are those of `other`.
    #[must_use]
    pub fn ends_with(&self, other: &Self) -> bool {
        self.0.ends_with(&other.0)
    }

    /// Returns this prompt with the blocks of `other` appended.
    #[must_use]
    pub fn followed_by(&self, other: &Self) -> Self {
        Self(self.0.iter().chain(&other.0).cloned().collect())
    }
}

impl<'de> Deserialize<'de> for PromptContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = RawJson::deserialize(deserializer)?;
        if let Ok(text) = json.read::<String>() {
            return Ok(Self::text(&text));
        }
        let blocks: Option<Vec<RawJson>> = json.read().ok();
        let blocks = blocks.filter(|blocks| blocks.iter().all(|block| block.get().starts_with('{')));
        let expected = "expected a string or an array of content blocks, each an object";
        blocks.map(Self).ok_or_else(|| D::Error::custom(expected))
    }
}

impl schemars::JsonSchema for PromptContent {
    /// Inlined, because requests and answers have different schemas, and a name can have only one.
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PromptContent".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let blocks = schemars::json_schema!({
            "description": "ACP's content blocks, in order.",
            "type": "array",
            "items": { "type": "object" },
        });
        if generator.contract().is_serialize() {
            return blocks;
        }
        schemars::json_schema!({
            "anyOf": [blocks, { "description": "One text block.", "type": "string" }],
        })
    }
}
