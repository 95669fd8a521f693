//! How the types of the wire are declared: objects, and words of which later versions may know more.

/// Declares objects: structs whose members are camelCase on the wire. A member with `= default` is left out if it has its type's
/// default, and may be absent when it is read; an `Option` may always be absent. A member `as time` is written as [`crate::time`]
/// says.
macro_rules! objects {
    ($(
        $(#[$meta:meta])*
        $name:ident { $( $(#[$member_meta:meta])* $member:ident: $type:ty $(as $time:ident)? $(= $default:ident)?, )* }
    )+) => { $(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub struct $name { $(
            $(#[$member_meta])*
            $(#[serde($default, skip_serializing_if = "crate::declare::is_default")])?
            // Names the repetition; the condition never holds.
            $(#[cfg_attr(any(), $time)] #[serde(serialize_with = "crate::time::write")])?
            pub $member: $type,
        )* }
    )+ };
}

/// Declares enums of words. A word of a newer version is read as `Unknown`, which is never written.
macro_rules! words {
    ($(
        $(#[$meta:meta])*
        $name:ident { $( $(#[$word_meta:meta])* $word:ident, )+ }
    )+) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase")]
        #[non_exhaustive]
        pub enum $name {
            $( $(#[$word_meta])* $word, )+
            /// A value that this version of the crate does not know.
            #[serde(other)]
            #[schemars(skip)]
            Unknown,
        }
    )+ };
}

pub(crate) use {objects, words};

/// Whether a member has its type's default.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
