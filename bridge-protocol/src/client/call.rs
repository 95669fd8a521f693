//! Calls of the methods, by their parameters.

use jsonrpsee::core::client::{Error, Subscription, SubscriptionClientT};
use jsonrpsee::core::traits::ToRpcParams;
use serde_json::value::RawValue;

use crate::event::EventEnvelope;
use crate::method::{Method, Subscribe};

/// Calls of the daemon's methods, with any jsonrpsee client.
pub trait Call {
    /// Calls a method and waits for its answer.
    ///
    /// # Errors
    /// As the daemon answers (`Error::Call`, which [`crate::BridgeError`] reads), or as the connection fails.
    fn call<M: Method>(&self, params: M) -> impl Future<Output = Result<M::Answer, Error>> + Send;

    /// Subscribes to events.
    ///
    /// # Errors
    /// As [`Call::call`].
    fn events(
        &self,
        params: Subscribe,
    ) -> impl Future<Output = Result<Subscription<EventEnvelope>, Error>> + Send;
}

impl<Client: SubscriptionClientT + Sync> Call for Client {
    async fn call<M: Method>(&self, params: M) -> Result<M::Answer, Error> {
        self.request(M::NAME, ByName(params)).await
    }

    async fn events(&self, params: Subscribe) -> Result<Subscription<EventEnvelope>, Error> {
        self.subscribe(Subscribe::NAME, ByName(params), "conversation/unsubscribe")
            .await
    }
}

/// Parameters as an object, for calls whose answers are not read as [`Method::Answer`].
pub struct ByName<M>(pub M);

impl<M: Method> ToRpcParams for ByName<M> {
    fn to_rpc_params(self) -> Result<Option<Box<RawValue>>, serde_json::Error> {
        serde_json::value::to_raw_value(&self.0).map(Some)
    }
}
