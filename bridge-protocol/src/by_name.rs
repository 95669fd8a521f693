//! Reads structs by the names of their members only, and refuses unknown names.

use std::fmt;

use serde::de::{DeserializeSeed, Error as _, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};

/// A value that is read by the names of its members, if it is a struct. Serde also reads a struct from an array, by position,
/// and skips members that it does not know. In a parameter, that would hide a misspelled name.
pub(crate) struct ByName<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ByName<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(StructsAsMaps(deserializer)).map(Self)
    }
}

/// A deserializer that reads a struct as a map.
struct StructsAsMaps<D>(D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for StructsAsMaps<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(KnownMembers {
            fields,
            reader: visitor,
        })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_newtype_struct(name, visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_option(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

/// Wraps the visitor of a struct and the map that it reads. Fails on a member that is not in `fields`.
struct KnownMembers<R> {
    fields: &'static [&'static str],
    reader: R,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for KnownMembers<V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reader.expecting(formatter)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        self.reader.visit_map(KnownMembers {
            fields: self.fields,
            reader: members,
        })
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for KnownMembers<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        match self.reader.next_key::<String>()? {
            Some(name) if !self.fields.contains(&&*name) => Err(A::Error::unknown_field(&name, self.fields)),
            Some(name) => seed.deserialize(name.into_deserializer()).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.reader.next_value_seed(seed)
    }
}
