//! Questions of the agent that wait for an answer from the user.

use bridge_protocol::event::Event;
use bridge_protocol::id::InterruptId;
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::turn::{ANSWER_PROMPT, Interrupt, InterruptKind};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::conversation::answer::{Answer, Caller};
use crate::conversation::effect::{
    AgentAnswer, CallChange, Effect, Ledger, Milestone, Response, SettledQuestion,
};
use crate::conversation::error::ConversationError;
use crate::conversation::prompt_request::PromptRequest;
use crate::conversation::state::{Model, OrphanAnswer};
use crate::store::{AnsweredInterrupt, RequestRecord, RestingState};

/// How many answered questions are remembered, so that the refusal of a late answer names the client that answered first.
const REMEMBERED_ANSWERS: usize = 64;

/// The value of `by` if the agent's configuration answered a question.
const BY_POLICY: &str = "policy";

impl<R> Model<R> {
    /// The agent asks a question. It is recorded before it is shown.
    pub fn question_asked(&mut self, kind: InterruptKind, params: RawJson, id: InterruptId) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            #[serde(default, borrow)]
            tool_call: Option<&'a RawValue>,
            #[serde(default, borrow)]
            options: Option<&'a RawValue>,
        }
        if self.turn.as_ref().is_some_and(|turn| turn.cancelled) || self.stopping {
            // ACP requires a client that cancels to answer every question in this way.
            self.effects
                .push(Effect::AnswerAgent(id, cancelled_outcome(kind), None));
            return;
        }
        self.prompt_confirmed();
        if let Some(turn) = &mut self.turn {
            turn.withdrawn_questions.clear();
        }
        let owned = |raw: Option<&RawValue>| raw.map(|raw| RawJson::new(raw.to_owned()));
        let (tool_call, options) = match params.read::<Params<'_>>() {
            Ok(members) => (owned(members.tool_call), owned(members.options)),
            Err(_) => (None, None),
        };
        let outcome = self.rules.interrupts.outcome(kind, &params);
        let interrupt = Interrupt {
            id: id.clone(),
            kind,
            tool_call,
            options,
            request: params,
            raised_at: self.now,
            orphaned: false,
        };
        if let Some(outcome) = outcome {
            self.answered_by_policy(interrupt, outcome);
            return;
        }
        self.record.interrupts.push(interrupt.clone());
        self.bump_revision();
        self.write(Ledger::default(), Milestone::QuestionRaised(Box::new(interrupt)));
    }

    /// Answers a question by policy. The user is not asked, but all clients see the question and the answer.
    fn answered_by_policy(&mut self, interrupt: Interrupt, outcome: RawJson) {
        let (id, kind) = (interrupt.id.clone(), interrupt.kind);
        self.settle_question(&id, BY_POLICY);
        self.bump_revision();
        let resolved = resolved_event(id.clone(), BY_POLICY, outcome.clone());
        let answer = AgentAnswer {
            id,
            kind,
            outcome,
            params: None,
        };
        let settled = SettledQuestion {
            events: vec![Event::InterruptRaised { interrupt }, resolved],
            answer: Some(answer),
            caller: None,
        };
        let milestone = Milestone::QuestionSettled(Box::new(settled));
        self.write(Ledger::default(), milestone);
    }

    /// The question is on disk, or could not be written. It is shown in either case, because the agent waits for an answer.
    /// If it was settled meanwhile, that is reported next.
    pub(super) fn question_recorded(&mut self, asked: Interrupt) {
        let interrupt = self.open_question(&asked.id).unwrap_or(asked);
        self.emit(Event::InterruptRaised { interrupt });
    }

    fn open_question(&self, id: &InterruptId) -> Option<Interrupt> {
        let mut open = self.record.interrupts.iter();
        open.find(|interrupt| interrupt.id == *id).cloned()
    }

    /// The agent withdrew its question.
    pub fn question_withdrawn(&mut self, id: &InterruptId) {
        let Some(question) = self.open_question(id) else {
            return;
        };
        let outcome = cancelled_outcome(question.kind);
        if let Some(turn) = &mut self.turn {
            turn.withdrawn_questions.push(question);
        }
        self.remove_and_report_question(id, "agent", outcome, None);
    }

    /// A client answers a question.
    pub(super) fn respond(&mut self, response: Response, caller: Caller<R>) {
        let (interrupt, is_refused) = match self.question_to_answer(&response) {
            Ok(found) => found,
            Err(error) => return self.answer(caller, Err(error)),
        };
        if !interrupt.orphaned {
            let answer = AgentAnswer {
                id: interrupt.id.clone(),
                kind: interrupt.kind,
                outcome: response.outcome.clone(),
                params: response.params,
            };
            let answer = Some((answer, caller));
            self.remove_and_report_question(&interrupt.id, &response.by, response.outcome, answer);
            return;
        }
        if is_refused {
            self.remove_refused_orphan(response, caller);
            return;
        }
        if let Some(refusal) = self.refusal_to_pass_on(&interrupt.id) {
            self.answer(caller, Err(refusal));
            return;
        }
        // The agent that asked has ended. Its successor gets the answer, once, in a turn of its own.
        let prompt = PromptContent::text(&orphan_text(&interrupt, &response.outcome));
        let turn_id = response.turn_id.clone();
        self.start_turn(PromptRequest::new(turn_id, prompt, self.now, Caller::none()));
        if let Some(turn) = &mut self.turn {
            turn.orphan_answer = Some(OrphanAnswer {
                response,
                question: None,
                caller,
            });
        }
    }

    /// The question that a client answers, and whether the client refuses what the agent asks for.
    fn question_to_answer(&self, response: &Response) -> Result<(Interrupt, bool), ConversationError> {
        let id = &response.interrupt_id;
        let Some(interrupt) = self.open_question(id) else {
            let mut answered = self.record.answered.iter();
            return Err(match answered.find(|answered| answered.id == *id) {
                Some(answered) => ConversationError::InterruptResolved {
                    by: answered.by.clone(),
                },
                None => ConversationError::NotFound {
                    what: format!("there is no question with id {id}"),
                },
            });
        };
        match is_refusal(&response.outcome, &interrupt) {
            Ok(is_refused) => Ok((interrupt, is_refused)),
            Err(why) => Err(ConversationError::invalid("outcome", why)),
        }
    }

    /// Why the answer to a question of an agent that has ended cannot be passed on now.
    fn refusal_to_pass_on(&self, id: &InterruptId) -> Option<ConversationError> {
        if self.stopping {
            return Some(ConversationError::ShuttingDown);
        }
        let turn = self.turn.as_ref();
        let pending = turn.and_then(|turn| turn.orphan_answer.as_ref());
        let why = if self.is_moving() {
            "the conversation is being moved to another folder; answer this question when the move is done"
        } else if let Some(first) = pending.filter(|first| first.response.interrupt_id == *id) {
            let by = first.response.by.clone();
            return Some(ConversationError::InterruptResolved { by });
        } else if turn.is_some() {
            "a turn is running; answer this question after its end"
        } else {
            return None;
        };
        Some(ConversationError::Busy(why.to_owned()))
    }

    /// Removes a question whose agent has ended. Only the record contains it: if the record cannot be written, the question
    /// stays open.
    fn remove_refused_orphan(&mut self, response: Response, caller: Caller<R>) {
        let Response {
            interrupt_id: id,
            outcome,
            by,
            ..
        } = response;
        let before = self.record.clone();
        if self.record.interrupts.len() == 1 {
            self.cancel_interrupted_turn();
        }
        self.settle_question(&id, &by);
        self.bump_revision();
        let resolved = resolved_event(id, &by, outcome);
        let change = CallChange::new(caller, Answer::Responded(None), before);
        self.write_change(Ledger::default(), change.with_events(vec![resolved]));
    }

    /// Treats the turn whose last question was refused as cancelled by the user.
    fn cancel_interrupted_turn(&mut self) {
        if self.record.cut.take_if(|cut| cut.asks).is_none() {
            return;
        }
        self.end_continuation_text();
        if self.turn.is_none() && self.record.resting == RestingState::Interrupted {
            self.record.resting = RestingState::Idle;
        }
    }

    /// Removes the question that the running turn answers from the record. This is written together with the prompt, so that
    /// the agent gets the answer exactly once, and with the answer to the caller. Returns the record of that call.
    pub(super) fn settle_orphan(&mut self) -> Option<RequestRecord> {
        let mut answer = self.turn.as_mut()?.orphan_answer.take()?;
        let response = &answer.response;
        answer.question = self.settle_question(&response.interrupt_id, &response.by);
        let responded = Answer::Responded(Some(response.turn_id.clone()));
        let record = self.answered_request_record(answer.caller.key.as_ref(), &responded);
        self.turn.as_mut()?.orphan_answer = Some(answer);
        record
    }

    /// The prompt did not reach the agent: the question is open again, and the call that answered it has had no effect
    /// yet.
    pub(super) fn unsettle_orphan(&mut self) {
        let Some(answer) = self.turn.as_mut().and_then(|turn| turn.orphan_answer.as_mut()) else {
            return;
        };
        let Some(question) = answer.question.take() else {
            return;
        };
        let request = answer.caller.key.clone();
        self.record.answered.retain(|answered| answered.id != question.id);
        self.record.interrupts.push(question);
        if let Some(request) = request {
            let begun = self.begun_request_record(&request);
            self.writer
                .unsaved_ledger
                .append(Ledger::with_request(Some(begun)));
        }
    }

    /// The agent has the prompt that contains the answer. All clients are notified that the question is settled. The client
    /// that answered also gets the turn of that prompt.
    pub(super) fn orphan_settled(&mut self) {
        let turn = self.turn.as_mut();
        let Some(answer) = turn.and_then(|turn| turn.orphan_answer.take()) else {
            return;
        };
        let response = answer.response;
        self.emit(resolved_event(
            response.interrupt_id,
            &response.by,
            response.outcome,
        ));
        self.answer(answer.caller, Ok(Answer::Responded(Some(response.turn_id))));
    }

    /// Removes a question from the record, if it is there, and remembers who settled it.
    fn settle_question(&mut self, id: &InterruptId, by: &str) -> Option<Interrupt> {
        self.record.answered.push(AnsweredInterrupt {
            id: id.clone(),
            by: by.to_owned(),
        });
        let excess = self.record.answered.len().saturating_sub(REMEMBERED_ANSWERS);
        self.record.answered.drain(..excess);
        let index = self.record.interrupts.iter().position(|open| open.id == *id)?;
        Some(self.record.interrupts.remove(index))
    }

    /// Settles every question that is open at the agent, except these, with ACP's `cancelled`, as ACP requires of a client that
    /// cancels.
    pub(super) fn cancel_questions(&mut self, kept: &[InterruptId]) {
        for (id, outcome) in self.cancel_open_questions(kept) {
            self.remove_and_report_question(&id, "cancel", outcome, None);
        }
    }

    /// Answers every question that is open at the agent with `cancelled`, except these, without changing the record. Returns
    /// the questions.
    fn cancel_open_questions(&mut self, kept: &[InterruptId]) -> Vec<(InterruptId, RawJson)> {
        let open = self.record.interrupts.iter();
        let open = open.filter(|open| !open.orphaned && !kept.contains(&open.id));
        let open: Vec<_> = open
            .map(|open| (open.id.clone(), cancelled_outcome(open.kind)))
            .collect();
        for (id, outcome) in open.clone() {
            self.effects.push(Effect::AnswerAgent(id, outcome, None));
        }
        open
    }

    /// Keeps the open questions for the next agent. Returns whether there were any.
    pub(super) fn orphan_questions(&mut self) -> bool {
        let mut any = false;
        for interrupt in &mut self.record.interrupts {
            any |= !interrupt.orphaned;
            interrupt.orphaned = true;
        }
        if any {
            self.mark_unsaved();
        }
        any
    }

    /// The agent reports that whatever asked the questions is dead. The questions are kept for the next agent; this agent gets
    /// `cancelled`, so that it does not wait for answers.
    pub(super) fn orphan_questions_of_dead_agent(&mut self) {
        self.cancel_open_questions(&[]);
        self.orphan_questions();
    }

    /// Reopens, for the next agent, the questions that were withdrawn for the same reason that ended the turn: they were
    /// not answered.
    pub(super) fn reopen_withdrawn_questions(&mut self) {
        let withdrawn = self
            .turn
            .as_mut()
            .map(|turn| std::mem::take(&mut turn.withdrawn_questions));
        for question in withdrawn.unwrap_or_default() {
            self.record.answered.retain(|answered| answered.id != question.id);
            let interrupt = Interrupt {
                orphaned: true,
                ..question
            };
            self.record.interrupts.push(interrupt.clone());
            self.writer.unsaved_ledger.append(Ledger {
                events: vec![Event::InterruptRaised { interrupt }],
                ..Ledger::default()
            });
        }
    }

    /// Removes a question from the record. This is reported once it is on disk. Only then does the agent get the answer, if it
    /// still waits for one, so that the agent's reaction is reported later.
    fn remove_and_report_question(
        &mut self,
        id: &InterruptId,
        by: &str,
        outcome: RawJson,
        answer: Option<(AgentAnswer, Caller<R>)>,
    ) {
        self.settle_question(id, by);
        self.record.revision += 1;
        let events = vec![resolved_event(id.clone(), by, outcome)];
        let (answer, caller) = answer.unzip();
        // Written together: otherwise a caller that retries after a crash in between would learn that another client was first.
        let request = caller.as_ref().and_then(|caller| caller.key.as_ref());
        let record = self.answered_request_record(request, &Answer::Responded(None));
        let settled = SettledQuestion {
            events,
            answer,
            caller,
        };
        let milestone = Milestone::QuestionSettled(Box::new(settled));
        self.write(Ledger::with_request(record), milestone);
    }

    /// The end of a question is on disk, or could not be written.
    pub(super) fn question_settled(&mut self, settled: SettledQuestion<R>) {
        let SettledQuestion {
            events,
            answer,
            caller,
        } = settled;
        events.into_iter().for_each(|event| self.emit(event));
        if let Some(answer) = answer {
            let is_cancelled = self.stopping || self.turn.as_ref().is_some_and(|turn| turn.cancelled);
            // ACP requires a client that cancels to answer every question in this way.
            let (outcome, params) = match is_cancelled {
                true => (cancelled_outcome(answer.kind), None),
                false => (answer.outcome, answer.params),
            };
            self.effects.push(Effect::AnswerAgent(answer.id, outcome, params));
        }
        if let Some(caller) = caller {
            self.answer(caller, Ok(Answer::Responded(None)));
        }
    }

    /// Removes the questions of a closed session from the record, because their history is abandoned. Returns the events to
    /// send. `by` names what abandons the history.
    pub(super) fn drop_questions(&mut self, by: &str) -> Vec<Event> {
        let mut dropped = self.record.interrupts.clone();
        dropped.retain(|open| open.orphaned);
        let settle = |question: Interrupt| {
            self.settle_question(&question.id, by);
            resolved_event(question.id, by, cancelled_outcome(question.kind))
        };
        dropped.into_iter().map(settle).collect()
    }
}

/// The event that reports a settled question.
fn resolved_event(interrupt_id: InterruptId, by: &str, outcome: RawJson) -> Event {
    Event::InterruptResolved {
        interrupt_id,
        by: by.to_owned(),
        outcome,
    }
}

/// Whether ACP's outcome refuses what the question asks for. The error describes why the outcome does not fit the question.
fn is_refusal(outcome: &RawJson, interrupt: &Interrupt) -> Result<bool, String> {
    let value: Value = outcome.read().unwrap_or_default();
    let word = |name: &str| value[name].as_str();
    if interrupt.kind == InterruptKind::Elicitation {
        return match word("action").or_else(|| word("outcome")) {
            Some("accept") => Ok(false),
            Some("decline" | "cancel" | "cancelled") => Ok(true),
            _ => Err(
                "the outcome must be ACP's of an elicitation: {\"action\":\"accept\",\"content\":…}, \
                 {\"action\":\"decline\"} or {\"action\":\"cancel\"}"
                    .to_owned(),
            ),
        };
    }
    let chosen = match (word("outcome"), word("optionId")) {
        (Some("cancelled"), _) => return Ok(true),
        (Some("selected"), Some(chosen)) => chosen,
        _ => {
            return Err(
                "the outcome must be ACP's: {\"outcome\":\"selected\",\"optionId\":…} with one of the question's \
                 options, or {\"outcome\":\"cancelled\"}"
                    .to_owned(),
            );
        }
    };
    let options = offered_options(interrupt);
    if let Some(option) = options.iter().find(|option| option["optionId"] == chosen) {
        return Ok(!allows(option));
    }
    let ids = options.iter().filter_map(|option| option["optionId"].as_str());
    let ids: Vec<&str> = ids.collect();
    Err(match ids.is_empty() {
        true => format!("there is no option \"{chosen}\": the question can only be cancelled"),
        false => format!("there is no option \"{chosen}\"; one of: {}", ids.join(", ")),
    })
}

/// The options of a permission.
fn offered_options(interrupt: &Interrupt) -> Vec<Value> {
    let options = interrupt.options.as_ref();
    options
        .and_then(|options| options.read().ok())
        .unwrap_or_default()
}

/// Whether an option grants the permission.
fn allows(option: &Value) -> bool {
    !option["kind"].as_str().unwrap_or_default().starts_with("reject")
}

/// ACP's outcome for a question without an answer.
fn cancelled_outcome(kind: InterruptKind) -> RawJson {
    RawJson::from(match kind {
        InterruptKind::Permission => serde_json::json!({"outcome": "cancelled"}),
        _ => serde_json::json!({"action": "cancel"}),
    })
}

/// The text for the next agent about the answer to a question that its predecessor left open, unless the answer is a
/// refusal.
fn orphan_text(interrupt: &Interrupt, outcome: &RawJson) -> String {
    let outcome: Value = outcome.read().unwrap_or_default();
    if interrupt.kind == InterruptKind::Elicitation {
        let request: Value = interrupt.request.read().unwrap_or_default();
        let message = request["message"].as_str().unwrap_or("something of the person.");
        let answer = match &outcome["content"] {
            Value::Null => " yes".to_owned(),
            content => format!(": {content}"),
        };
        return format!("{ANSWER_PROMPT}: {message} The answer is{answer}. Please continue from there.");
    }
    let call = interrupt.tool_call.as_ref();
    let call: Value = call.and_then(|call| call.read().ok()).unwrap_or_default();
    let title = call["title"].as_str().unwrap_or("the step you asked about");
    let input = match &call["rawInput"] {
        Value::Null => String::new(),
        input => format!(" with {input}"),
    };
    format!(
        "{ANSWER_PROMPT} for permission for: {title}{input}. {} Please continue from there.",
        granted_text(interrupt, &outcome)
    )
}

/// A permission as text. Names the chosen option if the question had several ways to allow.
fn granted_text(interrupt: &Interrupt, outcome: &Value) -> String {
    let options = offered_options(interrupt);
    let mut each = options.iter();
    let chosen = each.find(|option| option["optionId"] == outcome["optionId"]);
    let is_always = chosen.is_some_and(|option| option["kind"] == "allow_always");
    let how_long = if is_always { "and always" } else { "this once" };
    match chosen.and_then(|option| option["name"].as_str()) {
        Some(name) if options.iter().filter(|option| allows(option)).count() > 1 => {
            format!("The answer is yes, {how_long}: \"{name}\" was chosen.")
        }
        _ => format!("The answer is yes, {how_long}."),
    }
}

#[cfg(test)]
mod tests {
    use bridge_protocol::InterruptId;
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn interrupt(kind: InterruptKind, options: Value, request: Value) -> Interrupt {
        Interrupt {
            id: InterruptId::new("i1"),
            kind,
            tool_call: Some(RawJson::from(json!({"title": "Pick a database"}))),
            options: Some(RawJson::from(options)),
            request: RawJson::from(request),
            raised_at: Timestamp::UNIX_EPOCH,
            orphaned: true,
        }
    }

    #[test]
    fn the_successor_of_an_agent_is_told_what_was_answered() {
        let option = |id: &str, kind: &str| json!({"optionId": id, "name": id.to_uppercase(), "kind": kind});
        let several = json!([
            option("one", "allow_once"),
            option("all", "allow_always"),
            option("no", "reject_once")
        ]);
        let single = json!([option("one", "allow_once"), option("no", "reject_once")]);
        let table = [
            (
                &several,
                "one",
                "The answer is yes, this once: \"ONE\" was chosen.",
            ),
            (
                &several,
                "all",
                "The answer is yes, and always: \"ALL\" was chosen.",
            ),
            (&single, "one", "The answer is yes, this once. Please"),
        ];
        for (options, chosen, told) in table {
            let asked = interrupt(InterruptKind::Permission, options.clone(), json!({}));
            let outcome = RawJson::from(json!({"outcome": "selected", "optionId": chosen}));
            let text = orphan_text(&asked, &outcome);
            assert!(text.contains("Pick a database") && text.contains(told), "{text}");
        }
        let asked = interrupt(
            InterruptKind::Elicitation,
            json!([]),
            json!({"message": "Which database?"}),
        );
        let outcome = RawJson::from(json!({"action": "accept", "content": {"db": "SQLite"}}));
        let text = orphan_text(&asked, &outcome);
        assert!(
            text.contains("Which database?") && text.contains(r#"{"db":"SQLite"}"#),
            "{text}"
        );
    }
}
