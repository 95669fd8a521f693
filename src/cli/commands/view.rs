//! What a person sees of a conversation while it is followed: output, questions, and how its session came back.
//!
//! It owns the questions that are open and the text that is running. It must not know why the conversation is
//! followed.

use bridge_protocol::client::Call as _;
use bridge_protocol::method;
use std::collections::VecDeque;

use anstyle::Style;
use bridge_protocol::conversation::Conversation;
use bridge_protocol::event::Event;
use bridge_protocol::link::{Fidelity, Resumed};
use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::{Interrupt, TurnResult};
use bridge_protocol::{ConversationRef, InterruptId};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;

use super::send::OnQuestion;
use crate::cli::connect::Daemon;
use crate::cli::exit::Exit;
use crate::cli::output::{ATTENTION, DIM, Output, one_line};
use crate::cli::problem::{Outcome, Problem};
use crate::cli::question::{self, Person, Typed};
use crate::cli::render::Renderer;
use crate::cli::words;

/// A conversation as it is shown.
pub(super) struct View<'a> {
    daemon: &'a Daemon,
    output: &'a mut Output,
    renderer: Renderer,
    conversation: ConversationRef,
    person: Option<Person>,
    /// What becomes of questions when there is no person.
    unattended: OnQuestion,
    /// The open questions; the first is the one that is asked.
    questions: VecDeque<Interrupt>,
    told_resumed: bool,
    /// The question that was answered here.
    answered: Option<InterruptId>,
    /// What waits for the end of the agent's line.
    later: Vec<String>,
}

impl<'a> View<'a> {
    /// Nothing has been shown yet.
    pub(super) fn new(
        daemon: &'a Daemon,
        output: &'a mut Output,
        conversation: ConversationRef,
        person: Option<Person>,
        unattended: OnQuestion,
    ) -> Self {
        Self {
            renderer: Renderer::new(output.look),
            daemon,
            output,
            conversation,
            person,
            unattended,
            questions: VecDeque::new(),
            told_resumed: false,
            answered: None,
            later: Vec::new(),
        }
    }

    /// Shows something that the agent said.
    pub(super) fn update(&mut self, update: &RawJson) -> Outcome {
        let text = self.renderer.update(update);
        self.output.text(&text)?;
        if self.renderer.is_at_line_start() {
            self.say_later()?;
        }
        Ok(())
    }

    /// Prints the bytes of an event, for `--json`.
    pub(super) fn raw(&mut self, value: &RawJson) -> Outcome {
        self.output.raw(value)
    }

    /// Prints the bytes of the last answer of a method, for `--json`.
    pub(super) fn answer(&mut self, method: &str) -> Outcome {
        match self.daemon.answer(method) {
            Some(answer) => self.output.raw(&answer),
            None => Ok(()),
        }
    }

    /// Says something about the conversation, on standard error.
    pub(super) fn note(&mut self, text: &str) -> Outcome {
        let end = self.renderer.end_line();
        self.output.text(&end)?;
        self.say_later()?;
        self.output.note(text)
    }

    /// Says what waited for the end of a line.
    fn say_later(&mut self) -> Outcome {
        for text in std::mem::take(&mut self.later) {
            self.output.note(&text)?;
        }
        Ok(())
    }

    /// The same, in a style.
    pub(super) fn styled_note(&mut self, style: Style, text: &str) -> Outcome {
        let text = self.output.note_look.paint(style, text);
        self.note(&text)
    }

    /// The same, dimmed.
    pub(super) fn aside(&mut self, text: &str) -> Outcome {
        self.styled_note(DIM, text)
    }

    /// Gives the person back, to whoever shows the conversation next.
    pub(super) fn into_person(self) -> Option<Person> {
        self.person
    }

    /// Shows a line among the output, in a style.
    pub(super) fn styled_line(&mut self, style: Style, text: &str) -> Outcome {
        let line = self.renderer.line(&self.output.look.paint(style, text));
        self.output.text(&line)
    }

    /// Ends the running text.
    pub(super) fn end_turn(&mut self) -> Outcome {
        let end = self.renderer.end_turn();
        self.output.text(&end)?;
        self.say_later()
    }

    /// Tells of questions that are not those of the turn that is followed.
    pub(super) fn others_questions<'i>(
        &mut self,
        interrupts: impl IntoIterator<Item = &'i Interrupt>,
    ) -> Outcome {
        for interrupt in interrupts {
            let whose = if interrupt.orphaned {
                "a question of an earlier turn is still open"
            } else {
                "the turn that is running waits for an answer"
            };
            let subject = question::subject(interrupt);
            self.aside(&format!("{whose}: {subject}"))?;
            let how = self.how_to_answer(interrupt);
            self.aside(&format!("  {how}"))?;
        }
        Ok(())
    }

    /// Shows the events that look the same whoever's turn it is.
    pub(super) fn common(&mut self, event: &Event) -> Outcome {
        match event {
            Event::Snapshot {
                conversation, gap, ..
            } => self.snapshot(conversation, *gap),
            Event::InterruptRaised { interrupt } => self.raised(interrupt.clone()),
            Event::InterruptResolved { interrupt_id, by, .. } => self.resolved(interrupt_id, by),
            Event::Resumed { resumed } => self.resumed(resumed),
            Event::ForeignWriter { upstream_id } => {
                let what = format!(
                    "another program writes to session {upstream_id}; end one of the two, or what one of them says is lost"
                );
                self.styled_note(ATTENTION, &what)
            }
            _ => Ok(()),
        }
    }

    /// Tells how the session came back, when something is missing and it has not been told yet.
    pub(super) fn resumed(&mut self, resumed: &Resumed) -> Outcome {
        if resumed.fidelity == Fidelity::Full || std::mem::replace(&mut self.told_resumed, true) {
            return Ok(());
        }
        self.styled_note(ATTENTION, &words::resumed(resumed))
    }

    /// Whether a question waits for a line from a person.
    pub(super) fn asks(&self) -> bool {
        self.person.is_some() && !self.questions.is_empty()
    }

    /// The next line that a person types; never ready without one. Safe to be dropped before it is ready.
    pub(super) async fn typed(&mut self) -> Option<Typed> {
        match &mut self.person {
            Some(person) => person.line().await,
            None => std::future::pending().await,
        }
    }

    /// Takes a typed line as the answer to the question that is asked.
    pub(super) async fn take_line(&mut self, line: Option<Typed>) -> Outcome {
        let Some(line) = line else {
            self.person = None;
            return self.unattended().await;
        };
        if let Some(person) = &self.person
            && !person.knew(&line)
        {
            // Typed before the question was there to be read.
            person.listen_on();
            return Ok(());
        }
        let Some(interrupt) = self.questions.front() else {
            return Ok(());
        };
        let Some(option) = question::pick(&question::choices(interrupt), &line.text) else {
            return self.ask();
        };
        let id = interrupt.id.clone();
        self.answered = Some(id.clone());
        self.respond(id, question::outcome(&option)).await
    }

    /// Does with the open questions what was asked for when there is no person to ask.
    ///
    /// # Errors
    /// With [`Exit::Asked`] when they are to be left open.
    pub(super) async fn unattended(&mut self) -> Outcome {
        if self.person.is_some() {
            return Ok(());
        }
        while let Some(interrupt) = self.questions.pop_front() {
            self.note_lines(question::lines(&interrupt))?;
            let how = self.how_to_answer(&interrupt);
            match self.unattended {
                OnQuestion::Wait => {
                    self.styled_note(ATTENTION, &format!("  {how}"))?;
                }
                OnQuestion::Deny => {
                    self.aside("  denied, as --on-question says")?;
                    self.respond(interrupt.id.clone(), question::refusal(&interrupt))
                        .await?;
                }
                OnQuestion::Leave => {
                    let problem = Problem::new(
                        Exit::Asked,
                        format!(
                            "the agent asks, and nobody is here to answer: {}",
                            question::subject(&interrupt)
                        ),
                    );
                    let conversation = &self.conversation;
                    return Err(problem
                        .hint(format!(
                            "{how}; sessionctl attach {conversation} follows the turn"
                        ))
                        .details(json!({"interruptId": interrupt.id, "options": interrupt.options})));
                }
            }
        }
        Ok(())
    }

    async fn respond(&mut self, id: InterruptId, outcome: RawJson) -> Outcome {
        let answered = self
            .daemon
            .call(method::Respond {
                conversation_id: self.conversation.clone(),
                interrupt_id: id,
                outcome,
                by: Some(question::ANSWERER.to_owned()),
                ..Default::default()
            })
            .await;
        match answered.map_err(Problem::from) {
            Ok(_) => Ok(()),
            // Somebody else was first, or the turn has ended: the event that says so removes the question.
            Err(problem) if problem.exit == Exit::Busy => {
                self.answered = None;
                Ok(())
            }
            Err(problem) => Err(problem),
        }
    }

    /// The command that answers a question.
    fn how_to_answer(&self, interrupt: &Interrupt) -> String {
        question::command(&self.conversation.to_string(), interrupt)
    }

    fn snapshot(&mut self, conversation: &Conversation, gap: bool) -> Outcome {
        if gap {
            self.aside("some of the output was missed")?;
        }
        self.questions.clear();
        for interrupt in &conversation.interrupts {
            self.questions.push_back(interrupt.clone());
        }
        self.ask()
    }

    fn raised(&mut self, interrupt: Interrupt) -> Outcome {
        self.questions.push_back(interrupt);
        if self.questions.len() == 1 {
            self.ask()
        } else {
            Ok(())
        }
    }

    fn resolved(&mut self, id: &InterruptId, by: &str) -> Outcome {
        let was_asked = self.questions.front().is_some_and(|question| question.id == *id);
        self.questions.retain(|question| question.id != *id);
        if by == question::ANSWERER && self.answered.as_ref() == Some(id) {
            // Whoever typed the answer knows of it.
            return if was_asked { self.ask() } else { Ok(()) };
        }
        let how = match by {
            "client" => "answered".to_owned(),
            "cancel" => "the question is void: the turn was cancelled".to_owned(),
            "agent" => "the question is void: the agent took it back".to_owned(),
            "reset" => "the question is void: a new chat was started".to_owned(),
            other => format!("answered by {}", one_line(other)),
        };
        // The agent may have gone on already: its words are not torn for this.
        self.later.push(self.output.note_look.paint(DIM, &how));
        if self.renderer.is_at_line_start() {
            self.say_later()?;
        }
        if was_asked { self.ask() } else { Ok(()) }
    }

    /// Asks the person the first open question.
    fn ask(&mut self) -> Outcome {
        let (Some(interrupt), Some(person)) = (self.questions.front(), &mut self.person) else {
            return Ok(());
        };
        let lines = question::lines(interrupt);
        let how = if question::choices(interrupt).is_empty() {
            question::command(&self.conversation.to_string(), interrupt)
        } else {
            "type a number and Enter".to_owned()
        };
        person.listen();
        self.note_lines(lines)?;
        self.styled_note(ATTENTION, &format!("  {how}"))
    }

    fn note_lines(&mut self, lines: Vec<String>) -> Outcome {
        for line in lines {
            self.note(&line)?;
        }
        Ok(())
    }
}

/// What is told of a turn that did not simply end well.
pub(super) fn problem_of(turn: &TurnResult, now: Timestamp, zone: &TimeZone) -> Option<Problem> {
    use bridge_protocol::turn::{FailureKind, StopReason};

    let exit = Exit::of_turn(turn);
    let Some(failure) = &turn.failure else {
        let message = match &turn.stop_reason {
            StopReason::EndTurn => return None,
            StopReason::Cancelled => "the turn was cancelled",
            StopReason::Refusal => "the model declined to go on",
            StopReason::MaxTokens => "the answer was cut off at the model's output limit",
            StopReason::MaxTurnRequests => "the agent stopped at its limit of model requests in one turn",
            StopReason::Failed => "the turn failed",
            StopReason::Other(reason) => &format!("the agent stopped with the reason {reason}"),
            _ => "the turn stopped for a reason that this version does not know",
        };
        return Some(Problem::new(exit, message));
    };
    let kind = words::failure(failure.kind);
    // Some messages begin with these words themselves.
    let mut message = match failure.message.strip_prefix(kind) {
        Some(rest) => format!("{kind}{rest}"),
        None => format!("{kind}: {}", failure.message),
    };
    if let Some(at) = failure.resets_at {
        message.push_str(&format!("; it is lifted at {}", words::moment(at, now, zone)));
    }
    let problem = Problem::new(exit, message);
    if let Some(continuation) = &turn.continuation {
        return Some(problem.hint(format!(
            "it goes on by itself at {}; sessionctl continue CONV --cancel calls that off",
            words::moment(continuation.at, now, zone)
        )));
    }
    let hint = match failure.kind {
        FailureKind::RateLimited => {
            "nothing is lost: sessionctl continue CONV --at-reset has it go on by itself then, with its whole history"
        }
        FailureKind::AuthRequired => {
            "sign in with the agent's own program; sessionctl recover CONV then goes on with it"
        }
        FailureKind::AgentDied | FailureKind::DaemonRestarted => {
            "the next prompt brings the conversation back with its history"
        }
        FailureKind::ContextOverflow => "sessionctl fork branches off; sessionctl reset starts a new chat",
        _ if failure.retryable => "the same prompt may work in a moment",
        _ => return Some(problem),
    };
    Some(problem.hint(hint))
}

#[cfg(test)]
mod tests {
    use bridge_protocol::turn::{Failure, FailureKind, StopReason, TurnResult};
    use jiff::tz::TimeZone;

    use super::problem_of;

    fn turn(stop_reason: StopReason, failure: Option<Failure>) -> TurnResult {
        TurnResult {
            turn_id: "turn".into(),
            stop_reason,
            failure,
            upstream_id: "up".into(),
            resumed: None,
            usage: None,
            continuation: None,
        }
    }

    #[test]
    fn a_limit_tells_when_it_is_lifted() {
        let now = "2026-11-03T12:00:00Z".parse().unwrap();
        let failure = Failure {
            kind: FailureKind::RateLimited,
            message: "You've hit your limit".to_owned(),
            resets_at: Some("2026-11-03T12:30:00Z".parse().unwrap()),
            retryable: true,
        };
        let problem = problem_of(&turn(StopReason::Failed, Some(failure)), now, &TimeZone::UTC).unwrap();
        assert_eq!(
            problem.message.as_deref(),
            Some("usage limit: You've hit your limit; it is lifted at 12:30:00 (in 30 min)")
        );
        assert_eq!(problem.exit.code(), 7);
        assert!(problem.hint.is_some());
    }

    #[test]
    fn a_message_that_says_its_kind_is_not_given_it_again() {
        let now = "2026-11-03T12:00:00Z".parse().unwrap();
        for (message, expected) in [
            (
                "the agent's process ended (signal 9)",
                "the agent's process ended (signal 9)",
            ),
            ("it is gone", "the agent's process ended: it is gone"),
        ] {
            let failure = Failure {
                kind: FailureKind::AgentDied,
                message: message.to_owned(),
                resets_at: None,
                retryable: true,
            };
            let problem = problem_of(&turn(StopReason::Failed, Some(failure)), now, &TimeZone::UTC).unwrap();
            assert_eq!(problem.message.as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_good_end_is_no_problem_and_a_cut_answer_is() {
        let now = "2026-11-03T12:00:00Z".parse().unwrap();
        assert_eq!(
            problem_of(&turn(StopReason::EndTurn, None), now, &TimeZone::UTC),
            None
        );
        let cut = problem_of(&turn(StopReason::MaxTokens, None), now, &TimeZone::UTC).unwrap();
        assert_eq!(cut.exit.code(), 1);
    }
}
