//! JSON schemas of the types, as the document has them: of JSON Schema's draft 7, which OpenRPC wants, with the types'
//! own documentation as descriptions.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, RestrictFormats};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;

/// Where the document keeps what several places refer to.
const SCHEMAS_PATH: &str = "/components/schemas";

/// Formats that checkers know. Those of Rust's numbers say nothing that `minimum` does not.
const FORMATS: [&str; 2] = ["date-time", "uuid"];

/// The schemas of both directions. Of what is sent to the daemon a member may be left out where its type has a default;
/// of what the daemon says one is left out only where the type leaves it out.
pub(super) struct Schemas {
    taken: SchemaGenerator,
    told: SchemaGenerator,
}

impl Schemas {
    pub(super) fn new() -> Self {
        let mut formats = RestrictFormats::default();
        formats.infer_from_meta_schema = false;
        formats.allowed_formats.extend(FORMATS.map(Into::into));
        let settings = SchemaSettings::draft07()
            .with(|settings| {
                settings.definitions_path = SCHEMAS_PATH.into();
                settings.meta_schema = None;
            })
            .with_transform(formats)
            .with_transform(RecursiveTransform(describe));
        Self {
            taken: settings.clone().for_deserialize().into_generator(),
            told: settings.for_serialize().into_generator(),
        }
    }

    /// The schema of a method's struct, in place and not by reference.
    pub(super) fn members<T: JsonSchema>(&mut self) -> Value {
        let schema = T::json_schema(&mut self.taken);
        transformed(&mut self.taken, schema)
    }

    /// The schema of something that the daemon says.
    pub(super) fn told<T: JsonSchema>(&mut self) -> Value {
        schema_of::<T>(&mut self.told)
    }

    /// What was referred to, by name. A type for which the directions differ has no name of its own, and stands where it
    /// is used.
    pub(super) fn definitions(mut self) -> BTreeMap<String, Value> {
        let taken = self.taken.take_definitions(true);
        taken
            .into_iter()
            .chain(self.told.take_definitions(true))
            .map(|(name, schema)| (name, sorted(schema)))
            .collect()
    }

    /// The names that stand for different things in the two directions.
    #[cfg(test)]
    pub(super) fn ambiguous(&self) -> Vec<&String> {
        let told = self.told.definitions();
        let differs =
            |(name, schema): &(&String, &Value)| told.get(*name).is_some_and(|other| other != *schema);
        let taken = self.taken.definitions().iter();
        taken.filter(differs).map(|(name, _)| name).collect()
    }
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    let schema = generator.subschema_for::<T>();
    transformed(generator, schema)
}

fn transformed(generator: &mut SchemaGenerator, mut schema: Schema) -> Value {
    for transform in generator.transforms_mut() {
        transform.transform(&mut schema);
    }
    sorted(schema.to_value())
}

/// Members in the order of their names, whatever features serde_json is built with.
pub(super) fn sorted(mut value: Value) -> Value {
    value.sort_all_objects();
    value
}

/// Makes a description of a doc comment.
fn describe(schema: &mut Schema) {
    if let Some(Value::String(description)) = schema.get_mut("description") {
        *description = prose(description.lines());
    }
}

/// The text of a doc comment: a paragraph is one line, and names are links no more.
pub(super) fn prose<'a>(lines: impl IntoIterator<Item = &'a str>) -> String {
    let mut text = String::new();
    for line in lines.into_iter().map(str::trim) {
        let ends = text.is_empty() || text.ends_with('\n');
        match (line.is_empty(), ends) {
            (true, false) => text.push_str("\n\n"),
            (true, true) => {}
            (false, true) => text.push_str(line),
            (false, false) => {
                text.push(' ');
                text.push_str(line);
            }
        }
    }
    text.trim_end().replace("[`", "`").replace("`]", "`")
}

#[cfg(test)]
mod tests {
    use super::prose;

    #[test]
    fn a_doc_comment_becomes_prose() {
        let table: [(&[&str], &str); 4] = [
            (&[" One line."], "One line."),
            (&[" Two", " lines."], "Two lines."),
            (&[" One.", "", " Two", " lines."], "One.\n\nTwo lines."),
            (&[" See [`Link::turns`]."], "See `Link::turns`."),
        ];
        for (lines, text) in table {
            assert_eq!(prose(lines.iter().copied()), text);
        }
    }
}
