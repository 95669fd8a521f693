//! The calls of clients. Each call returns a number that identifies its answer; the id of a prompt's turn is `t` and that
//! number.

use std::sync::Arc;

use bridge_protocol::conversation::{ContinueAt, OnBusy, OnLimit, Settings, TranscriptsOnDelete};
use bridge_protocol::id::TurnId;
use bridge_protocol::link::Fidelity;
use bridge_protocol::method::{Cancel, Continue, Edit, Prompt, Update};
use bridge_protocol::raw::{PromptContent, RawJson};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::world::World;
use crate::conversation::answer::{CallKey, FINGERPRINT_VERSION};
use crate::conversation::destination::Destination;
use crate::conversation::effect::{Call, Fork, IncomingCall, MoveRequest, Response};
use crate::conversation::running_work::RunningWork;
use crate::store::RequestId;
use crate::transcript::moving::SharedRemainingForks;

impl World {
    pub(super) fn call(&mut self, call: Call, key: Option<&str>) -> u32 {
        let request = key.map(|key| CallKey {
            id: RequestId::new(key),
            fingerprint: fingerprint(&call),
        });
        let kept = key.and_then(|key| self.disk.requests.get(key).cloned());
        let reply = self.next_reply();
        let asked = IncomingCall { call, request, reply };
        self.apply(|model| model.admit(asked, kept));
        reply
    }

    fn next_reply(&mut self) -> u32 {
        self.calls += 1;
        self.calls
    }

    /// The id of the turn that the next call starts.
    fn next_turn(&self) -> TurnId {
        TurnId::new(format!("t{}", self.calls + 1))
    }

    pub(super) fn prompt(&mut self, text: &str) -> u32 {
        self.prompt_with(text, OnBusy::Fail, Fidelity::Text, None)
    }

    pub(super) fn queue(&mut self, text: &str) -> u32 {
        self.prompt_with(text, OnBusy::Queue, Fidelity::Text, None)
    }

    pub(super) fn prompt_with(
        &mut self,
        text: &str,
        on_busy: OnBusy,
        min_fidelity: Fidelity,
        key: Option<&str>,
    ) -> u32 {
        let turn_id = self.next_turn();
        let prompt = PromptContent::text(text);
        self.call(
            Call::Prompt(
                Prompt {
                    prompt,
                    on_busy,
                    min_fidelity,
                    ..Prompt::default()
                },
                turn_id.into(),
            ),
            key,
        )
    }

    /// A prompt that waits for the end of a limit.
    pub(super) fn prompt_and_wait(&mut self, text: &str) -> u32 {
        let turn_id = self.next_turn();
        let call = Prompt {
            prompt: PromptContent::text(text),
            on_limit: OnLimit::Wait,
            ..Prompt::default()
        };
        self.call(Call::Prompt(call, turn_id.into()), None)
    }

    pub(super) fn continue_at(&mut self, at: ContinueAt, text: Option<&str>) -> u32 {
        let call = Continue {
            at: Some(at),
            text: text.map(PromptContent::text),
            ..Continue::default()
        };
        self.call(Call::Continue(call), None)
    }

    pub(super) fn do_not_continue(&mut self) -> u32 {
        let call = Continue {
            cancel: true,
            ..Continue::default()
        };
        self.call(Call::Continue(call), None)
    }

    pub(super) fn cancel(&mut self) -> u32 {
        self.call(Call::Cancel(Cancel::default(), None), None)
    }

    pub(super) fn cancel_turn(&mut self, turn: &str) -> u32 {
        let call = Cancel {
            turn_id: Some(turn.into()),
            ..Cancel::default()
        };
        self.call(Call::Cancel(call, None), None)
    }

    pub(super) fn resume(&mut self, min_fidelity: Fidelity) -> u32 {
        self.call(Call::Resume(min_fidelity), None)
    }

    pub(super) fn set_title(&mut self, title: &str) -> u32 {
        let call = Update {
            title: Some(title.to_owned()),
            ..Update::default()
        };
        self.call(Call::Update(call, None), None)
    }

    pub(super) fn set_mode(&mut self, mode: &str) -> u32 {
        let settings = Settings {
            mode: Some(mode.to_owned()),
            ..Settings::default()
        };
        let call = Update {
            settings,
            ..Update::default()
        };
        self.call(Call::Update(call, None), None)
    }

    pub(super) fn fork(&mut self, in_place: bool) -> u32 {
        self.fork_at(in_place, None)
    }

    pub(super) fn fork_at(&mut self, in_place: bool, at: Option<&str>) -> u32 {
        self.call(
            Call::Fork(Fork {
                in_place,
                at: at.map(|at| at.parse().expect("a place")),
                cwd: None,
                title: None,
                min_fidelity: Fidelity::Text,
                params: None,
            }),
            None,
        )
    }

    /// Replaces the turn at a place.
    pub(super) fn edit(&mut self, at: &str) -> u32 {
        self.edit_with(at, Fidelity::Text, None)
    }

    pub(super) fn edit_with(&mut self, at: &str, min_fidelity: Fidelity, key: Option<&str>) -> u32 {
        let turn_id = self.next_turn();
        let call = Edit {
            prompt: PromptContent::text("better"),
            min_fidelity,
            ..Edit::default()
        };
        let at = at.parse().expect("a place");
        self.call(Call::Edit(call, at, turn_id.into()), key)
    }

    pub(super) fn undo(&mut self) -> u32 {
        let works = Arc::new(RunningWork::default());
        let progress = works
            .track("conversation/undo", None, CancellationToken::new())
            .progress();
        self.call(
            Call::Undo {
                session: None,
                progress,
            },
            None,
        )
    }

    pub(super) fn move_to(&mut self, cwd: &str, key: Option<&str>) -> u32 {
        let works = Arc::new(RunningWork::default());
        let begun = works.track("conversation/move", None, CancellationToken::new());
        let request = MoveRequest {
            destination: Destination::Folder(cwd.to_owned()),
            undoes: false,
            neighbours: SharedRemainingForks::default(),
            progress: begun.progress(),
        };
        self.call(Call::Move(request), key)
    }

    pub(super) fn hold(&mut self) -> u32 {
        self.call(Call::PauseForMove, None)
    }

    pub(super) fn release(&mut self) -> u32 {
        self.call(Call::ResumeAfterMove, None)
    }

    pub(super) fn repair(&mut self, key: Option<&str>) -> u32 {
        let works = Arc::new(RunningWork::default());
        let begun = works.track("transcript/check", None, CancellationToken::new());
        self.call(Call::Repair(begun.progress()), key)
    }

    pub(super) fn allow(&mut self, question: &str) -> u32 {
        self.respond(question, json!({"outcome": "selected", "optionId": "yes"}))
    }

    pub(super) fn deny(&mut self, question: &str) -> u32 {
        self.respond(question, json!({"outcome": "selected", "optionId": "no"}))
    }

    pub(super) fn respond(&mut self, question: &str, outcome: Value) -> u32 {
        self.respond_with(question, outcome, None)
    }

    pub(super) fn respond_with(&mut self, question: &str, outcome: Value, key: Option<&str>) -> u32 {
        let turn_id = self.next_turn();
        let response = Response {
            interrupt_id: question.into(),
            outcome: RawJson::from(outcome),
            by: "client".to_owned(),
            turn_id,
            params: None,
        };
        self.call(Call::Respond(response), key)
    }

    pub(super) fn close(&mut self) -> u32 {
        self.call(Call::Close, None)
    }

    pub(super) fn reset(&mut self) -> u32 {
        self.call(Call::Reset, None)
    }

    pub(super) fn delete(&mut self) -> u32 {
        self.call(Call::Delete(TranscriptsOnDelete::Keep), None)
    }
}

/// Calls with the same content have the same one; the ids that are minted for a call do not count.
fn fingerprint(call: &Call) -> String {
    let content = match call {
        Call::Prompt(call, _) => call.prompt.to_text(),
        Call::Move(request) => format!("{:?}", request.destination),
        Call::Repair(_) => String::new(),
        Call::Respond(response) => format!("{} {}", response.interrupt_id, response.outcome.get()),
        // Each has a turn of its own.
        Call::Edit(call, at, _) => format!("{at} {}", call.prompt.to_text()),
        other => format!("{other:?}"),
    };
    format!("{FINGERPRINT_VERSION}{content}")
}
