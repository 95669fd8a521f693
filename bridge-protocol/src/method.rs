//! The methods of the daemon: one table, one block for each.
//!
//! A block declares a method's name on the wire, its parameters, its result, what it is about, whether a call of it can be
//! repeated under a `requestId`, and its own errors. The server's dispatch, the typed client, the names of the known
//! parameters and the OpenRPC document all follow from it.
//!
//! - `(conversation)`: the method is about one conversation, `conversationId`.
//! - `(session)`: the method is about one session, `upstreamId` of `agent`, or about a conversation's, `conversationId`.
//! - `(once)`: the method changes something and takes a `requestId`.
//! - A member that is an `Option` may be left out. So may one with `= default`: its type's default applies.

mod agent;
mod conversation;
mod daemon;
mod transcript;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use crate::by_name::ByName;
use crate::error::{BridgeError, ErrorKind};
use crate::id::ConversationRef;

pub use agent::*;
pub use conversation::*;
pub use daemon::*;
pub use transcript::*;

/// A method of the daemon. The type that implements it holds its parameters.
pub trait Method: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// The result.
    type Answer: Serialize + DeserializeOwned + JsonSchema + Send + 'static;
    /// The name on the wire: `namespace/verb`.
    const NAME: &'static str;
    /// What it does, as the lines of a doc comment.
    const ABOUT: &'static [&'static str];
    /// The names of its parameters in Rust, in the order of its declaration.
    const MEMBERS: &'static [&'static str];
    /// The kinds of its own errors. Any method may also be `shuttingDown`, or fail with JSON-RPC's own errors.
    const ERRORS: &'static [ErrorKind];

    /// The conversation that the call is about, where the method is about one.
    fn conversation(&self) -> Option<&ConversationRef> {
        None
    }

    /// The caller's own id of this call, where the method takes one.
    fn request_id(&self) -> Option<&str> {
        None
    }
}

/// Declares the methods of a namespace: each one, and all of them together.
macro_rules! methods {
    (trait $all:ident; $(
        $(#[doc = $about:literal])+
        $name:literal => $method:ident ($($scope:ident),*) -> $answer:ty, [$($error:ident),*] { $($members:tt)* }
    )+) => {
        $($crate::method::method! {
            $(#[doc = $about])+
            $name => $method ($($scope),*) -> $answer, [$($error),*] { $($members)* }
        })+

        /// Carries out each method of the namespace.
        pub trait $all: $($crate::method::Handle<$method> +)+ {}

        impl<Server: $($crate::method::Handle<$method> +)+> $all for Server {}

        /// Shows each method to a visitor.
        pub(super) fn visit<Server: $all>(visitor: &mut impl $crate::method::Visitor<Server>) {
            $(visitor.method::<$method>();)+
        }
    };
}

/// Declares one method: the struct of its parameters, and [`Method`] for it. Each word of its scope adds a parameter, with its
/// errors and the function that returns it.
macro_rules! method {
    (
        $(#[doc = $about:literal])+
        $name:literal => $method:ident ($($scope:ident),*) -> $answer:ty, [$($error:ident),*] { $($members:tt)* }
    ) => {
        $crate::method::method! {
            @scope ($($scope),*) [[$($about),+] $name, $method, $answer] [$($error),*] { $($members)* } {}
        }
    };
    (
        @scope (conversation $(, $scope:ident)?) [$about:tt $name:literal, $method:ident, $answer:ty] [$($error:ident),*]
        { $($members:tt)* } {}
    ) => {
        impl $method {
            /// A call about this conversation, with the defaults for all other parameters.
            #[must_use]
            pub fn of(conversation_id: impl Into<$crate::id::ConversationRef>) -> Self {
                let mut call = Self::default();
                call.conversation_id = conversation_id.into();
                call
            }
        }
        $crate::method::method! {
            @scope ($($scope)?) [$about $name, $method, $answer] [$($error,)* NotFound, Ambiguous, StoreFailed]
            {
                /// The conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or more.
                conversation_id: $crate::id::ConversationRef,
                $($members)*
            }
            {
                fn conversation(&self) -> Option<&$crate::id::ConversationRef> {
                    Some(&self.conversation_id)
                }
            }
        }
    };
    (
        @scope (session $(, $scope:ident)?) $head:tt [$($error:ident),*] { $($members:tt)* } {}
    ) => {
        $crate::method::method! {
            @scope ($($scope)?) $head
            [$($error,)* NotFound, Ambiguous, Busy, Unsupported, TranscriptDamaged, StoreFailed]
            {
                /// The session, by the agent's own id, or the first 6 or more characters of it if no other session's id
                /// starts so. Either this or `conversationId`.
                upstream_id: Option<$crate::id::UpstreamId>,
                /// The conversation. Either this or `upstreamId`.
                conversation_id: Option<$crate::id::ConversationRef>,
                /// The agent of `upstreamId`. Needed where several agents have a session with this id.
                agent: Option<$crate::id::AgentName>,
                $($members)*
            }
            {
                fn conversation(&self) -> Option<&$crate::id::ConversationRef> {
                    self.conversation_id.as_ref()
                }
            }
        }
    };
    (@scope (once) $head:tt [$($error:ident),*] { $($members:tt)* } { $($scoped:tt)* }) => {
        $crate::method::method! {
            @scope () $head [$($error,)* Conflict, StoreFailed]
            {
                $($members)*
                /// The caller's own id of this call: the same id with the same content joins the running call or returns its
                /// result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256
                /// bytes. Default: each call is carried out.
                request_id: Option<String>,
            }
            {
                $($scoped)*
                fn request_id(&self) -> Option<&str> {
                    self.request_id.as_deref()
                }
            }
        }
    };
    (
        @scope () [[$($about:literal),+] $name:literal, $method:ident, $answer:ty] [$($error:ident),*]
        { $( $(#[doc = $what:literal])+ $member:ident: $type:ty $(= $default:ident)?, )* } { $($scoped:tt)* }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct $method { $(
            $(#[doc = $what])+
            #[serde(skip_serializing_if = "crate::declare::is_default" $(, $default, deserialize_with = "crate::method::null_is_default")?)]
            pub $member: $type,
        )* }

        impl $crate::method::Method for $method {
            type Answer = $answer;
            const NAME: &'static str = $name;
            const ABOUT: &'static [&'static str] = &[$($about),+];
            const MEMBERS: &'static [&'static str] = &[$(stringify!($member)),*];
            const ERRORS: &'static [$crate::error::ErrorKind] = &[$($crate::error::ErrorKind::$error),*];
            $($scoped)*
        }
    };
}

use {method, methods};

/// Carries out a method.
pub trait Handle<M: Method>: Send + Sync + 'static {
    /// Carries a call out and returns its answer.
    fn handle(&self, params: M) -> impl Future<Output = Result<M::Answer, BridgeError>> + Send;
}

/// No server, for visitors that only look at the methods.
impl<M: Method> Handle<M> for () {
    async fn handle(&self, _: M) -> Result<M::Answer, BridgeError> {
        Err(BridgeError::new(ErrorKind::MethodNotFound, "there is no server"))
    }
}

/// Code that runs once for each method, such as a server's table of them.
pub trait Visitor<Server = ()> {
    /// One method.
    fn method<M: Method>(&mut self)
    where
        Server: Handle<M>;
}

/// Shows each method to a visitor, except for the subscription to events.
pub fn visit<Server>(visitor: &mut impl Visitor<Server>)
where
    Server: HandleAgents + HandleConversations + HandleDaemon + HandleTranscripts,
{
    daemon::visit(visitor);
    agent::visit(visitor);
    conversation::visit(visitor);
    transcript::visit(visitor);
}

/// The names of a method's parameters on the wire, in the order of its declaration.
#[must_use]
pub fn parameter_names<M: Method>() -> Vec<String> {
    M::MEMBERS.iter().copied().map(camel_case).collect()
}

/// The form that serde gives a member's name: `request_id` is `requestId`, `r#as` is `as`.
fn camel_case(member: &str) -> String {
    let mut words = member.trim_start_matches("r#").split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (initial, rest) = word.split_at(word.len().min(1));
        name + &initial.to_uppercase() + rest
    })
}

/// Absent and null mean the same.
fn null_is_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let read = Option::<ByName<T>>::deserialize(deserializer)?;
    Ok(read.map_or_else(T::default, |ByName(read)| read))
}
