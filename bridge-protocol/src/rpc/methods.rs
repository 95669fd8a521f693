//! How the methods of a namespace are declared once, for jsonrpsee and for the OpenRPC document, and all of them together.

#[cfg(feature = "server")]
use jsonrpsee::RpcModule;
#[cfg(feature = "server")]
use jsonrpsee::core::RegisterMethodError;

#[cfg(feature = "server")]
use super::{
    AgentRpcServer, CheckpointRpcServer, ConversationRpcServer, DaemonRpcServer, DiscoveryRpcServer,
    TranscriptRpcServer,
};
#[cfg(feature = "schema")]
use crate::openrpc::Methods;

/// Declares the methods of a namespace once: jsonrpsee's traits of both sides, and what the OpenRPC document says of
/// them. The trait goes on token by token, for jsonrpsee looks at how its types are written. Its attribute stands with each
/// trait and not here: what it makes of the trait has the hygiene of the place where it is written.
macro_rules! methods {
    ($describe:ident: $($declared:tt)*) => {
        #[cfg(any(feature = "client", feature = "server"))]
        $($declared)*

        #[cfg(feature = "schema")]
        described! { $describe $($declared)* }
    };
}

/// Reads such a trait for the document. A method that is written in another way does not compile.
#[cfg(feature = "schema")]
macro_rules! described {
    (
        $describe:ident
        $(#[doc = $about:literal])*
        #[cfg_attr($both:meta, rpc(client, server, namespace = $namespace:literal, namespace_separator = $separator:literal))]
        $(#[cfg_attr($($one_side:tt)*)])*
        pub trait $trait:ident { $(
            $(#[doc = $doc:literal])*
            $(#[method(name = $method:literal, param_kind = map)])?
            $(#[subscription(
                name = $subscribe:literal => $notification:literal,
                unsubscribe = $unsubscribe:literal,
                item = $item:ty,
                param_kind = map,
                with_extensions
            )])?
            async fn $function:ident(
                &self $(, $(#[argument(rename = $wire:literal)])? $argument:ident: $type:ty)* $(,)?
            ) -> $(RpcResult<$result:ty>)? $(SubscriptionResult)?;
        )* }
    ) => {
        pub(super) fn $describe(methods: &mut Methods) {
            $(
                let docs: &[&str] = &[$($doc),*];
                let params = vec![
                    $(methods.param::<$type>([$($wire,)? stringify!($argument)][0], stringify!($type))),*
                ];
                $(
                    let name = concat!($namespace, $separator, $method);
                    methods.add::<$result>(name, docs, params);
                )?
                $(methods.add_subscription::<$item>(
                    concat!($namespace, $separator, $subscribe),
                    concat!($namespace, $separator, $notification),
                    concat!($namespace, $separator, $unsubscribe),
                    docs,
                    params,
                );)?
            )*
        }
    };
}

/// All methods, to be served.
///
/// # Errors
/// When two methods have the same name, which the traits rule out.
#[cfg(feature = "server")]
pub fn module<Handlers>(handlers: &Handlers) -> Result<RpcModule<()>, RegisterMethodError>
where
    Handlers: AgentRpcServer
        + CheckpointRpcServer
        + ConversationRpcServer
        + DaemonRpcServer
        + DiscoveryRpcServer
        + TranscriptRpcServer
        + Clone,
{
    let mut module = RpcModule::new(());
    module.merge(DaemonRpcServer::into_rpc(handlers.clone()))?;
    module.merge(AgentRpcServer::into_rpc(handlers.clone()))?;
    module.merge(ConversationRpcServer::into_rpc(handlers.clone()))?;
    module.merge(TranscriptRpcServer::into_rpc(handlers.clone()))?;
    module.merge(CheckpointRpcServer::into_rpc(handlers.clone()))?;
    module.merge(DiscoveryRpcServer::into_rpc(handlers.clone()))?;
    Ok(module)
}

/// Tells all methods, for the OpenRPC document.
#[cfg(feature = "schema")]
pub(crate) fn describe(methods: &mut Methods) {
    super::daemon::describe(methods);
    super::agent::describe(methods);
    super::conversation::describe(methods);
    super::transcript::describe(methods);
    super::checkpoint::describe(methods);
    super::discovery::describe(methods);
}
