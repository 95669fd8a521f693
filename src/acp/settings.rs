//! Modes, options and models of a session.

use std::collections::BTreeMap;
use std::sync::Arc;

use bridge_protocol::conversation::Settings;
use bridge_protocol::method::{GetConversation, Update};
use bridge_protocol::raw::RawJson;
use bridge_protocol::{BridgeError, ConversationId, ErrorKind};
use serde::Deserialize;

use super::editor::Connection;
use super::message::{self, Failure, Reply};
use super::prompting::submit_in_order;
use super::session::Session;
use crate::bridge::ClientSwitchReason;

impl Connection {
    pub(super) async fn set_mode(&self, session: &Arc<Session>, params: &str) -> Reply {
        let mode = |mode| Settings {
            mode: Some(mode),
            ..Settings::default()
        };
        self.set_text(session, params, "modeId", mode).await
    }

    pub(super) async fn set_model(&self, session: &Arc<Session>, params: &str) -> Reply {
        let model = |model| Settings {
            model: Some(model),
            ..Settings::default()
        };
        self.set_text(session, params, "modelId", model).await
    }

    /// Changes the setting that this parameter names.
    async fn set_text(
        &self,
        session: &Arc<Session>,
        params: &str,
        name: &str,
        settings: impl FnOnce(String) -> Settings,
    ) -> Reply {
        let why = || format!("{name} is missing or not a string");
        let text = message::text_of(params, name);
        let text = text.ok_or_else(|| Failure::of(ErrorKind::InvalidParams, why()))?;
        let other = message::other_params(params, &["sessionId", name]);
        self.set(session, settings(text), other).await
    }

    /// Sets an option and answers with all options, as the agent reports them.
    pub(super) async fn set_option(&self, session: &Arc<Session>, params: &str) -> Reply {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params {
            config_id: String,
            value: RawJson,
        }
        let Params { config_id, value } = message::read(params)?;
        let settings = Settings {
            config: Some(BTreeMap::from([(config_id, value)])),
            ..Settings::default()
        };
        let other = message::other_params(params, &["sessionId", "configId", "value"]);
        self.set(session, settings, other).await?;
        let conversation = session.conversation();
        let id = conversation.ok_or_else(|| Failure::unknown_session(&session.id))?;
        let options = self.bridge.session_info(id).await?.config_options;
        let options = options.map(|options| self.peer.capabilities().supported_options(options));
        let options = options.as_ref().map_or("[]", RawJson::get);
        Ok(format!(r#"{{"configOptions":{options}}}"#))
    }

    /// Changes settings. `other`: further parameters for the agent.
    async fn set(&self, session: &Arc<Session>, settings: Settings, other: Option<RawJson>) -> Reply {
        let order = session.order.lock().await;
        let id = self.ensure_attached(session).await?;
        session.release().await;
        self.open_closed(session, id).await?;
        submit_in_order(self.update(id, settings, other), order).await?;
        Ok("{}".to_owned())
    }

    /// Opens the session if its agent has closed it, because only the agent knows which settings it accepts.
    async fn open_closed(&self, session: &Session, id: ConversationId) -> Result<(), BridgeError> {
        if self
            .run_app_call(GetConversation::of(id))
            .await?
            .conversation
            .live
        {
            return Ok(());
        }
        if let Err(error) = self.open_at_agent(session, id, ClientSwitchReason::Using).await {
            // The setting is applied when the session is next opened. It may be the one that the agent refused.
            tracing::info!(conversation = %id, %error, "a session is not open in its agent when an editor changes a setting");
        }
        Ok(())
    }

    /// Changes settings of a conversation.
    pub(super) async fn update(
        &self,
        id: ConversationId,
        settings: Settings,
        other: Option<RawJson>,
    ) -> Result<(), BridgeError> {
        let update = Update {
            settings,
            ..Update::of(id)
        };
        self.bridge.update(other, update).await.map(drop)
    }
}
