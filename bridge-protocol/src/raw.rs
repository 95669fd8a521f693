//! JSON that passes through unread: what an agent or an app said, byte for byte.

use std::fmt;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// A JSON value kept as the bytes in which it came.
///
/// Numbers keep their digits, unknown fields stay, the order of keys too. Two values are equal when their bytes are.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// Takes over a value that serde has already checked.
    #[must_use]
    pub fn new(value: Box<RawValue>) -> Self {
        Self(value)
    }

    /// Checks that the text is one JSON value and keeps it.
    ///
    /// # Errors
    /// When the text is not JSON.
    pub fn from_text(text: String) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text).map(Self)
    }

    /// Writes a value down as JSON.
    ///
    /// # Errors
    /// When the value has no JSON form (a map with keys that are not text, say).
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

    /// Gives the inner value away.
    #[must_use]
    pub fn into_raw(self) -> Box<RawValue> {
        self.0
    }

    /// Reads the value into a type.
    ///
    /// # Errors
    /// When the value does not have that shape.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.0.get())
    }
}

impl Default for RawJson {
    /// Null.
    fn default() -> Self {
        Self(RawValue::NULL.to_owned())
    }
}

impl From<serde_json::Value> for RawJson {
    fn from(value: serde_json::Value) -> Self {
        // A `Value` always has a JSON form: its keys are text and its numbers are JSON numbers.
        let text = value.to_string();
        RawValue::from_string(text).map_or_else(|_| Self(RawValue::NULL.to_owned()), Self)
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for RawJson {}

impl fmt::Debug for RawJson {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.get())
    }
}

impl schemars::JsonSchema for RawJson {
    /// It says nothing, so a name for it would say no more.
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RawJson".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        true.into()
    }
}

/// A prompt: ACP content blocks, as they came. On the wire either an array of blocks or a plain string, which is one
/// text block.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize)]
#[serde(transparent)]
pub struct PromptContent(Vec<RawJson>);

impl PromptContent {
    /// A prompt of one text block.
    #[must_use]
    pub fn text(text: &str) -> Self {
        let text = serde_json::Value::from(text);
        let block = format!(r#"{{"type":"text","text":{text}}}"#);
        // A string's JSON within an object's is JSON.
        Self(RawJson::from_text(block).into_iter().collect())
    }

    /// A prompt of these content blocks.
    #[must_use]
    pub fn blocks(blocks: Vec<RawJson>) -> Self {
        Self(blocks)
    }

    /// The content blocks in order.
    #[must_use]
    pub fn as_blocks(&self) -> &[RawJson] {
        &self.0
    }

    /// The text of all text blocks, one after another with a line break between.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.texts().join("\n")
    }

    /// The text of each text block.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        #[derive(Deserialize)]
        struct Block {
            #[serde(default)]
            text: Option<String>,
        }
        let text = |block: &RawJson| block.read::<Block>().ok().and_then(|block| block.text);
        self.0.iter().filter_map(text).collect()
    }

    /// Whether its last content blocks are those of another.
    #[must_use]
    pub fn ends_with(&self, other: &Self) -> bool {
        self.0.ends_with(&other.0)
    }

    /// This one and another behind it, as one.
    #[must_use]
    pub fn followed_by(&self, other: &Self) -> Self {
        Self(self.0.iter().chain(&other.0).cloned().collect())
    }
}

impl<'de> Deserialize<'de> for PromptContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PromptVisitor;

        impl<'de> Visitor<'de> for PromptVisitor {
            type Value = PromptContent;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or an array of content blocks")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(PromptContent::text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut blocks: A) -> Result<Self::Value, A::Error> {
                let mut collected = Vec::new();
                while let Some(block) = blocks.next_element::<RawJson>()? {
                    if !block.get().starts_with('{') {
                        return Err(de::Error::custom("each content block is an object"));
                    }
                    collected.push(block);
                }
                Ok(PromptContent(collected))
            }
        }

        deserializer.deserialize_any(PromptVisitor)
    }
}

impl schemars::JsonSchema for PromptContent {
    /// What is taken and what is told are not the same, and one name means one schema.
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
