//! The agent's questions during a turn: shown to the user, and answered by a key, by another client or not at all.
//!
//! It owns which question is asked and what a key means. How a question looks is [`question`]'s.

use std::collections::VecDeque;

use bridge_protocol::client::Call as _;
use bridge_protocol::conversation::RespondAnswer;
use bridge_protocol::method;
use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::Interrupt;
use bridge_protocol::{InterruptId, TurnId};
use serde_json::json;

use super::{OnQuestion, Talk, ToolCallId, typed};
use crate::cli::commands::Pager;
use crate::cli::exit::Exit;
use crate::cli::output::{ATTENTION, DIM, one_line};
use crate::cli::problem::{Outcome, Problem};
use crate::cli::talk::question::{self, Question};
use crate::cli::words;

/// What came of asking again.
pub(super) enum AskedAgain {
    /// No question is open.
    NoQuestion,
    /// All were refused: their turn is over.
    Refused,
    /// An answer started this turn.
    Continues(TurnId),
}

impl Talk<'_> {
    /// Says that questions are open that do not belong to the turn that is followed.
    pub(super) fn questions_of_others<'i>(
        &mut self,
        interrupts: impl IntoIterator<Item = &'i Interrupt>,
    ) -> Outcome {
        for interrupt in interrupts {
            let whose = match interrupt.orphaned {
                true => "a question of an earlier turn is still open",
                false => "the running turn waits for an answer",
            };
            self.screen
                .aside(&format!("{whose}: {}", question::subject(interrupt)))?;
            let how = self.how_to_answer(interrupt);
            self.screen.aside(&format!("  answer with: {how}"))?;
        }
        Ok(())
    }

    /// Whether a question waits for a key.
    pub(super) fn asks(&self) -> bool {
        self.person.is_some() && !self.questions.is_empty()
    }

    /// The first open question.
    pub(super) fn question(&self) -> Option<(&Interrupt, Question)> {
        let interrupt = self.questions.front()?;
        let id = interrupt
            .tool_call
            .as_ref()
            .and_then(|call| call.read::<ToolCallId>().ok());
        let known = id.and_then(|id| self.screen.tool_call(&id.tool_call_id));
        let look = self.screen.output.note_look;
        Some((interrupt, Question::of(interrupt, known, &self.folder, look)))
    }

    /// Asks the person the first open question.
    pub(super) fn ask(&mut self) -> Outcome {
        let Some((interrupt, question)) = self.question().filter(|_| self.person.is_some()) else {
            if let Some(person) = &mut self.person {
                person.rest();
            }
            return Ok(());
        };
        let look = self.screen.output.note_look;
        let (mut lines, mut keys) = (question.lines(look), question.keys());
        if question.is_free() {
            keys = format!("n declines; to answer: {}", self.how_to_answer(interrupt));
        }
        lines.push(look.paint(DIM, &format!("  {keys}")));
        self.screen.still();
        if let Some(person) = &mut self.person
            && let Err(error) = person.listen()
        {
            tracing::debug!(%error, "the terminal cannot be read");
            self.person = None;
        }
        for line in lines {
            self.screen.note(&line)?;
        }
        Ok(())
    }

    /// Takes a key as the answer to the question that is asked.
    pub(super) async fn take_key(&mut self, key: Option<char>) -> Outcome {
        let Some(key) = key else {
            self.person = None;
            return self.leave_unattended().await;
        };
        let Some((id, outcome)) = self.answer_of(key)? else {
            return Ok(());
        };
        self.answered = Some(id.clone());
        self.screen.spin();
        match self.respond(id, outcome).await {
            // Another client was first, or the turn has ended: the event that says so removes the question.
            Err(problem) if problem.exit == Exit::Busy => {
                self.answered = None;
                Ok(())
            }
            responded => responded.map(drop),
        }
    }

    /// The question that is asked and its outcome, if the key answers it. Keys without a meaning do nothing.
    pub(super) fn answer_of(&mut self, key: char) -> Outcome<Option<(InterruptId, RawJson)>> {
        let Some((interrupt, question)) = self.question() else {
            return Ok(None);
        };
        let outcome = match key {
            'd' => {
                self.page(&question.details())?;
                return Ok(None);
            }
            '?' => {
                for line in question.help() {
                    self.screen.aside(&format!("  {line}"))?;
                }
                return Ok(None);
            }
            'n' if question.is_free() => question::refusal(interrupt),
            key => match question.choice(key) {
                Some(choice) => question::selected(choice),
                None => return Ok(None),
            },
        };
        let (id, said) = (interrupt.id.clone(), question.said(key));
        self.screen.aside(&format!("  {said}"))?;
        if let Some(person) = &mut self.person {
            person.rest();
        }
        Ok(Some((id, outcome)))
    }

    /// Asks one question and nothing else. Nothing is returned if there is nobody to ask.
    ///
    /// # Errors
    /// What the daemon answers, or that the user left.
    pub(in crate::cli::talk) async fn settle(
        &mut self,
        interrupt: Interrupt,
    ) -> Outcome<Option<RespondAnswer>> {
        self.questions = VecDeque::from([interrupt]);
        self.ask()?;
        while self.asks() {
            let key = tokio::select! {
                key = typed(&mut self.person) => key,
                _ = self.interrupts.recv() => {
                    self.quiet();
                    let problem = Problem::new(Exit::Failed, "the question stays open");
                    let how = self.questions.front().map(|interrupt| self.how_to_answer(interrupt));
                    return Err(match how {
                        Some(how) => problem.hint(how),
                        None => problem,
                    });
                }
            };
            let Some(key) = key else { break };
            if let Some((id, outcome)) = self.answer_of(key)? {
                return self.respond(id, outcome).await.map(Some);
            }
        }
        self.quiet();
        Ok(None)
    }

    /// Shows text in the pager, and asks again after it.
    pub(super) fn page(&mut self, text: &str) -> Outcome {
        if let Some(person) = &mut self.person {
            person.rest();
        }
        match Pager::start() {
            Some(mut pager) => {
                pager.take(text);
                pager.end();
            }
            None => self.screen.note(text.trim_end())?,
        }
        self.ask()
    }

    /// Asks the questions that a turn left open when its agent or its daemon ended.
    ///
    /// # Errors
    /// With [`Exit::Asked`] when there is nobody to ask; what the daemon answers, or that the user left.
    pub(super) async fn ask_again(&mut self) -> Outcome<AskedAgain> {
        let mut asked = AskedAgain::NoQuestion;
        loop {
            let conversation = method::GetConversation {
                conversation_id: self.id.into(),
            };
            let open = self.daemon.call(conversation).await?.conversation.interrupts;
            let Some(interrupt) = open.into_iter().find(|interrupt| interrupt.orphaned) else {
                self.questions.clear();
                return Ok(asked);
            };
            self.screen
                .aside("the turn was cut short; its question is still open")?;
            let denies = self.person.is_none() && self.unattended == OnQuestion::Deny;
            let answered = match denies {
                true => {
                    let outcome = question::refusal(&interrupt);
                    self.respond(interrupt.id.clone(), outcome).await.map(Some)
                }
                false => self.settle(interrupt.clone()).await,
            };
            match answered {
                Ok(Some(RespondAnswer { turn_id: Some(turn) })) => {
                    self.questions.clear();
                    return Ok(AskedAgain::Continues(turn));
                }
                Ok(Some(_)) => {
                    self.is_given_up = true;
                    asked = AskedAgain::Refused;
                }
                Ok(None) => return Err(self.unanswered(&interrupt)),
                // Another client was first.
                Err(problem) if problem.exit == Exit::Busy => {}
                Err(problem) => return Err(problem),
            }
        }
    }

    /// The problem of a question that nobody is here to answer.
    fn unanswered(&self, interrupt: &Interrupt) -> Problem {
        let (id, how) = (words::short_id(self.id), self.how_to_answer(interrupt));
        let subject = question::subject(interrupt);
        let message = format!("the agent asks, and there is no terminal to answer on: {subject}");
        Problem::new(Exit::Asked, message)
            .hint(format!(
                "{how}; then follow the turn with: sessionctl attach {id}"
            ))
            .details(json!({"interruptId": interrupt.id, "options": interrupt.options}))
    }

    /// Does with the open questions what was asked for when there is no person to ask.
    ///
    /// # Errors
    /// With [`Exit::Asked`] when they are to be left open.
    pub(super) async fn leave_unattended(&mut self) -> Outcome {
        if self.person.is_some() {
            return Ok(());
        }
        while let Some(interrupt) = self.questions.pop_front() {
            let look = self.screen.output.note_look;
            let question = Question::of(&interrupt, None, &self.folder, look);
            for line in question.report(look) {
                self.screen.note(&line)?;
            }
            let how = self.how_to_answer(&interrupt);
            match self.unattended {
                OnQuestion::Wait => self.screen.styled(ATTENTION, &format!("  answer with: {how}"))?,
                OnQuestion::Deny => {
                    self.screen.aside("  denied because of --on-question deny")?;
                    match self
                        .respond(interrupt.id.clone(), question::refusal(&interrupt))
                        .await
                    {
                        Err(problem) if problem.exit != Exit::Busy => return Err(problem),
                        _ => {}
                    }
                }
                OnQuestion::Leave => return Err(self.unanswered(&interrupt)),
            }
        }
        Ok(())
    }

    pub(super) async fn respond(&mut self, id: InterruptId, outcome: RawJson) -> Outcome<RespondAnswer> {
        let call = method::Respond {
            conversation_id: self.id.into(),
            interrupt_id: id,
            outcome,
            by: Some(question::ANSWERER.to_owned()),
            ..Default::default()
        };
        Ok(self.daemon.call(call).await?)
    }

    pub(super) fn how_to_answer(&self, interrupt: &Interrupt) -> String {
        question::command(&words::short_id(self.id), interrupt)
    }

    pub(super) fn resolved(&mut self, id: &InterruptId, by: &str) -> Outcome {
        let is_known = self.questions.iter().any(|question| question.id == *id);
        let was_asked = self.questions.front().is_some_and(|question| question.id == *id);
        self.questions.retain(|question| question.id != *id);
        let is_own = by == question::ANSWERER && self.answered.as_ref() == Some(id);
        if is_known && !is_own {
            let how = match by {
                "client" => "answered by another client".to_owned(),
                "cancel" => "question withdrawn: the turn was cancelled".to_owned(),
                "agent" => "question withdrawn by the agent".to_owned(),
                "reset" => "question withdrawn: a new chat was started".to_owned(),
                other => format!("answered by {}", one_line(other)),
            };
            self.screen.later(&how)?;
        }
        if was_asked && self.questions.is_empty() {
            self.screen.spin();
        }
        if was_asked { self.ask() } else { Ok(()) }
    }
}
