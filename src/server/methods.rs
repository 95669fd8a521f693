//! The table of methods: each entry parses the text of the parameters, calls the bridge, and writes the answer as text.
//!
//! The only module of this room that knows which methods exist.

use std::sync::Arc;

use bridge_protocol::method::{self, Handle, Method, Subscribe, Visitor};
use futures_util::future::BoxFuture;

use super::calls::{Handler, Methods};
use super::{answer, parameters, subscriber};
use crate::bridge::Bridge;

/// Returns all methods that the socket serves.
pub fn methods(bridge: Arc<Bridge>) -> Methods {
    let mut served = MethodTable(bridge, Methods::new());
    method::visit(&mut served);
    let MethodTable(bridge, mut methods) = served;
    let subscribe = Handler::Subscribe {
        event: "conversation/event",
        read: Box::new(move |params| subscriber::subscription(&bridge, params)),
    };
    methods.insert(Subscribe::NAME, subscribe);
    methods.insert("conversation/unsubscribe", Handler::Unsubscribe);
    methods
}

/// A builder for the table of methods.
struct MethodTable(Arc<Bridge>, Methods);

impl Visitor<Bridge> for MethodTable {
    fn method<M: Method>(&mut self)
    where
        Bridge: Handle<M>,
    {
        let bridge = Arc::clone(&self.0);
        let call = move |params: &str| -> BoxFuture<'static, answer::CallResult> {
            let (bridge, params) = (Arc::clone(&bridge), parameters::read::<M>(params));
            Box::pin(async move { answer::result(&bridge.handle(params?).await?) })
        };
        self.1.insert(M::NAME, Handler::Call(Box::new(call)));
    }
}
