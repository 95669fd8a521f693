//! One conversation of the agent behind the gate, with helpers that hold its calls, kill its processes and check the
//! result.

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::{Conversation, ConversationState};
use bridge_protocol::link::Fidelity;
use bridge_protocol::turn::{FailureKind, StopReason, TurnResult};
use serde_json::{Value, json};

use crate::gate::Gate;
use crate::home::{Daemon, Home, kill_now, wait_for_end};
use crate::support::{App, Raw};

/// Which process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    /// The agent process.
    Process,
    /// The child process that does the agent's work.
    Child,
}

pub(crate) const BOTH: [Victim; 2] = [Victim::Process, Victim::Child];

/// A conversation of the agent behind the gate.
pub(crate) struct Scene<'a> {
    pub(crate) home: &'a Home,
    pub(crate) gate: &'a Gate,
    pub(crate) app: App,
    pub(crate) raw: Raw,
    pub(crate) id: ConversationId,
    /// The prompts that the agent has to remember.
    pub(crate) said: Vec<String>,
}

impl<'a> Scene<'a> {
    pub(crate) async fn new(daemon: &Daemon<'a>, gate: &'a Gate) -> Self {
        let app = daemon.app().await;
        let id = app.make(&daemon.home.project()).await;
        Self {
            home: daemon.home,
            gate,
            app,
            raw: daemon.raw().await,
            id,
            said: Vec::new(),
        }
    }

    /// Makes such a conversation with one turn.
    pub(crate) async fn begun(daemon: &Daemon<'a>, gate: &'a Gate) -> Self {
        let mut scene = Self::new(daemon, gate).await;
        scene.send("first").await;
        scene
    }

    pub(crate) async fn send(&mut self, text: &str) -> TurnResult {
        let turn = self.app.send(self.id, text).await;
        assert_eq!(turn.stop_reason, StopReason::EndTurn, "{turn:?}");
        self.said.push(text.to_owned());
        turn
    }

    pub(crate) async fn get(&self) -> Conversation {
        self.app.get(self.id).await
    }

    /// Begins a call, and returns its request id.
    pub(crate) async fn begin(&mut self, method: &str, more: Value) -> u64 {
        let mut params = more;
        params["conversationId"] = json!(self.id);
        self.raw.send(method, params).await
    }

    /// Begins a call that makes the daemon send the call `held` to the agent, which does not answer it.
    pub(crate) async fn begin_held(&mut self, held: &str, method: &str, more: Value) -> u64 {
        self.gate.hold(held);
        let request = self.begin(method, more).await;
        self.gate.wait_until_held();
        request
    }

    /// Sends the prompt `x` in the same way.
    pub(crate) async fn prompt_held(&mut self, held: &str) -> u64 {
        self.begin_held(held, "conversation/prompt", json!({"prompt": "x"}))
            .await
    }

    /// Kills the victim. Returns the processes that must end soon.
    pub(crate) fn kill(&self, victim: Victim) -> Vec<u32> {
        let (process, child) = self.gate.last();
        kill_now(match victim {
            Victim::Process => process,
            Victim::Child => child,
        });
        vec![process, child]
    }

    pub(crate) async fn answer(&mut self, request: u64) -> Value {
        match self.raw.passed.iter().position(|line| line["id"] == request) {
            Some(index) => self.raw.passed.remove(index).unwrap(),
            None => self.raw.answer(request).await,
        }
    }

    /// The result of a prompt.
    pub(crate) async fn turn(&mut self, request: u64) -> TurnResult {
        let answer = self.answer(request).await;
        serde_json::from_value(answer["result"].clone()).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    /// Asserts that the next prompt continues with the whole history, in one process, and that the dead processes have
    /// ended.
    pub(crate) async fn goes_on(mut self, dead: Vec<u32>) {
        let turn = self.send("after it").await;
        if let Some(resumed) = &turn.resumed {
            assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Full, 0));
        }
        let conversation = self.get().await;
        assert_eq!(
            (conversation.state, conversation.failure),
            (ConversationState::Idle, None)
        );
        assert_eq!(self.app.remembered(self.id).await, self.said);
        dead.into_iter().for_each(wait_for_end);
        assert_eq!(
            self.gate.children(self.home).len(),
            1,
            "{:?}",
            self.home.processes()
        );
    }

    /// Asserts that the turn failed because its agent died, and that the conversation is interrupted.
    pub(crate) async fn ends_as_cut_short(&mut self, prompt: u64, text: &str) {
        let turn = self.turn(prompt).await;
        let failure = turn.failure.unwrap();
        // If the prompt were sent again, a tool that it had called would run again.
        let called = text.contains("[[write") || text.contains("[[ask");
        assert_eq!(
            (failure.kind, failure.retryable),
            (FailureKind::AgentDied, !called)
        );
        let conversation = self.get().await;
        assert_eq!(conversation.state, ConversationState::Interrupted);
        assert_eq!((conversation.live, conversation.failure), (false, None));
        self.said.push(text.to_owned());
    }
}

/// Asserts that a call was refused because there is no agent. The message depends on which of the processes ended
/// first.
pub(crate) fn is_told(answer: &Value) {
    let data = &answer["error"]["data"];
    assert_eq!(
        (&data["kind"], &data["retryable"]),
        (&json!("agentUnavailable"), &json!(true)),
        "{answer}"
    );
}
