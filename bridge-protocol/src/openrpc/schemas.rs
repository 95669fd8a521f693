//! JSON schemas of the types in the OpenRPC document: draft 7, as OpenRPC requires, with the types' doc comments as
//! descriptions.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, RestrictFormats};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;

/// Where the document has its named schemas.
const SCHEMAS_PATH: &str = "/components/schemas";

/// The formats that validators know. Formats of Rust's number types add nothing to `minimum`.
const FORMATS: [&str; 2] = ["date-time", "uuid"];

/// The schemas for both directions. In requests, a member may be omitted if its type has a default; in answers, only if
/// the type omits it when writing.
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

    /// The schema of a method's parameters, inline instead of a reference.
    pub(super) fn members<T: JsonSchema>(&mut self) -> Value {
        let schema = T::json_schema(&mut self.taken);
        transformed(&mut self.taken, schema)
    }

    /// The schema of something that the daemon sends.
    pub(super) fn told<T: JsonSchema>(&mut self) -> Value {
        let schema = self.told.subschema_for::<T>();
        transformed(&mut self.told, schema)
    }

    /// The named schemas. A type whose schemas differ by direction has no name; its schema is inlined.
    pub(super) fn definitions(mut self) -> BTreeMap<String, Value> {
        let taken = self.taken.take_definitions(true);
        taken
            .into_iter()
            .chain(self.told.take_definitions(true))
            .map(|(name, schema)| (name, sorted(schema)))
            .collect()
    }

    /// The names whose schemas differ by direction.
    #[cfg(test)]
    pub(super) fn ambiguous(&self) -> Vec<&String> {
        let told = self.told.definitions();
        let differs =
            |(name, schema): &(&String, &Value)| told.get(*name).is_some_and(|other| other != *schema);
        let taken = self.taken.definitions().iter();
        taken.filter(differs).map(|(name, _)| name).collect()
    }
}

fn transformed(generator: &mut SchemaGenerator, mut schema: Schema) -> Value {
    for transform in generator.transforms_mut() {
        transform.transform(&mut schema);
    }
    sorted(schema.to_value())
}

/// Sorts the members by name, so that serde_json's features do not matter.
pub(super) fn sorted(mut value: Value) -> Value {
    value.sort_all_objects();
    value
}

/// Turns a doc comment into a description.
fn describe(schema: &mut Schema) {
    if let Some(Value::String(description)) = schema.get_mut("description") {
        *description = prose(description.lines());
    }
}

/// The text of a doc comment, with each paragraph on one line and without link brackets.
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
    fn doc_comments_become_one_line_per_paragraph() {
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
