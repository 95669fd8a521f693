//! The agent's questions during a turn: shown to the user, and answered here, by another client or not at all.
//!
//! It owns which question is asked and what becomes of an answer. How a question looks is [`question`]'s.

use std::io;

use bridge_protocol::turn::Interrupt;
use bridge_protocol::{ErrorKind, InterruptId};
use serde_json::json;

use super::{OnQuestion, Talk};
use crate::cli::advice::Call;
use crate::cli::commands::Pager;
use crate::cli::exit::Exit;
use crate::cli::output::{ATTENTION, one_line};
use crate::cli::problem::{Outcome, Problem};
use crate::cli::talk::keys::LEAVES;
use crate::cli::talk::question::{self, Question};
use crate::cli::talk::screen::Screen;
use crate::cli::words;

/// A question as it was shown: what is answered is what was seen, whatever changes meanwhile.
pub(super) struct Asked {
    question: Question,
    /// The keys that answer it.
    pub(super) keys: String,
    /// Whether all of it was shown.
    is_read: bool,
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
            self.screen.aside(&format!("  {how}"))?;
        }
        Ok(())
    }

    /// Whether a question waits for a person who is here.
    pub(super) fn asks(&self) -> bool {
        self.person.is_some() && self.asked.is_some()
    }

    /// The question with what is known of its tool call.
    fn question(&self, interrupt: &Interrupt) -> Question {
        let known = question::tool_call_id(interrupt).and_then(|id| self.screen.tool_call(&id));
        let look = self.screen.output.note_look;
        Question::of(interrupt, known, &self.folder, look)
    }

    /// Asks the person the first open question.
    pub(super) fn ask(&mut self) -> Outcome {
        let first = self.questions.front().filter(|_| self.person.is_some());
        self.asked = first.map(|interrupt| {
            let question = self.question(interrupt);
            Asked {
                keys: question.keys(),
                question,
                is_read: false,
            }
        });
        self.show_asked()
    }

    /// Shows what is asked, and listens for the answer.
    fn show_asked(&mut self) -> Outcome {
        let (Some(interrupt), Some(asked)) = (self.questions.front(), &self.asked) else {
            if let Some(person) = &mut self.person {
                person.release();
            }
            return Ok(());
        };
        let lines = asked.question.lines(self.screen.output.note_look);
        let help = match asked.question.is_free() {
            true => format!("n declines; to answer: {}", self.how_to_answer(interrupt)),
            false => asked.question.keys_line(),
        };
        self.screen.still();
        if let Some(person) = &mut self.person
            && let Err(error) = person.listen()
        {
            tracing::debug!(%error, "the terminal cannot be read");
            self.person = None;
            return Ok(());
        }
        self.dialogue(|screen| {
            screen.question(&lines)?;
            screen.aside(&format!("  {help}"))
        })
    }

    /// Says what a person who is asked has to see, also if only results were wanted.
    fn dialogue(&mut self, say: impl FnOnce(&mut Screen<'_>) -> Outcome) -> Outcome {
        let quiet = std::mem::take(&mut self.screen.output.quiet);
        let said = say(&mut self.screen);
        self.screen.output.quiet = quiet;
        said
    }

    /// Takes what was typed at the question that is asked; nothing if the terminal cannot be read.
    pub(super) async fn take_answer(&mut self, typed: Option<String>) -> Outcome {
        let Some(typed) = typed else {
            self.person = None;
            return self.leave_unattended().await;
        };
        let (Some(interrupt), Some(asked)) = (self.questions.front(), &mut self.asked) else {
            return Ok(());
        };
        if typed == LEAVES {
            self.leave();
            return Err(self.stays_open(Exit::Asked));
        }
        let question = &asked.question;
        let is_unread = question.hidden_lines() > 0 && !asked.is_read;
        let answer = question.answer(interrupt, &typed);
        let allows = answer
            .as_ref()
            .is_some_and(|(outcome, _)| is_unread && question.allows(outcome));
        if typed == "d" || allows {
            let details = question.details();
            asked.is_read = true;
            if allows {
                self.dialogue(|screen| {
                    screen.aside("  not all of it was shown; read it, then answer again:")
                })?;
            }
            return self.page(&details);
        }
        let Some((outcome, said)) = answer else {
            let help = question.help();
            return self.dialogue(|screen| {
                help.iter()
                    .try_for_each(|line| screen.aside(&format!("  {line}")))
            });
        };
        let id = interrupt.id.clone();
        self.dialogue(|screen| screen.aside(&format!("  {said}")))?;
        if let Some(person) = &mut self.person {
            person.release();
        }
        self.answered = Some(id.clone());
        self.screen.spin();
        let daemon = self.daemon();
        let respond = daemon.call(question::respond(self.id, id, outcome));
        match self.waited(respond).await {
            Err(problem) if problem.exit == Exit::Busy => {
                self.answered = None;
                if problem.kind() != Some(ErrorKind::Busy) {
                    // Another client was first, or the turn has ended: the event that says so removes the question.
                    return Ok(());
                }
                self.dialogue(|screen| screen.aside(&problem.words()))?;
                self.ask()
            }
            responded => responded.map(drop),
        }
    }

    /// The problem of a user who leaves the question open.
    pub(super) fn stays_open(&self, exit: Exit) -> Problem {
        let answer = self.advice().command(Call::Answer(""));
        Problem::new(exit, "the question is still open; nothing was answered")
            .hint(format!("answer it later: {answer}"))
    }

    /// Shows text in the pager, and asks again after it.
    fn page(&mut self, text: &str) -> Outcome {
        if let Some(person) = &mut self.person {
            person.release();
        }
        // Standard output may be a file, which gets the answer only.
        let is_shown = Pager::start(io::stderr()).is_some_and(|mut pager| {
            pager.take(text);
            pager.end()
        });
        if !is_shown {
            self.dialogue(|screen| screen.verbatim(text.trim_end()))?;
        }
        self.show_asked()
    }

    /// The problem of a question that nobody is here to answer.
    pub(in crate::cli::talk) fn unanswered(&self, interrupt: &Interrupt) -> Problem {
        let (id, how) = (words::short_id(self.id), self.how_to_answer(interrupt));
        let subject = question::subject(interrupt);
        let message = format!("the agent waits for an answer: {subject}");
        Problem::new(Exit::Asked, message)
            .hint(format!("{how}; then follow the turn: sessionctl attach {id}"))
            .details(json!({"interruptId": interrupt.id, "options": interrupt.options}))
    }

    /// Applies `--on-question` to each open question when there is no person to ask.
    ///
    /// # Errors
    /// With [`Exit::Asked`] when they are to be left open.
    pub(super) async fn leave_unattended(&mut self) -> Outcome {
        if self.person.is_some() {
            return Ok(());
        }
        let new = self
            .questions
            .iter()
            .filter(|question| !self.reported.contains(&question.id));
        for interrupt in new.cloned().collect::<Vec<_>>() {
            self.reported.insert(interrupt.id.clone());
            let question = self.question(&interrupt);
            let look = self.screen.output.note_look;
            self.screen.question(&question.report(look))?;
            match self.unattended {
                OnQuestion::Wait => {
                    let how = self.how_to_answer(&interrupt);
                    self.screen.styled(ATTENTION, &format!("  {how}"))?;
                }
                OnQuestion::Deny => {
                    self.screen.aside("  denied because of --on-question deny")?;
                    let refusal = question::refusal(&interrupt);
                    self.answered = Some(interrupt.id.clone());
                    let respond = question::respond(self.id, interrupt.id, refusal);
                    let daemon = self.daemon();
                    match self.waited(daemon.call(respond)).await {
                        Err(problem) if problem.exit != Exit::Busy => return Err(problem),
                        _ => {}
                    }
                }
                OnQuestion::Leave => return Err(self.unanswered(&interrupt)),
            }
        }
        Ok(())
    }

    pub(super) fn how_to_answer(&self, interrupt: &Interrupt) -> String {
        question::command(&self.advice(), interrupt)
    }

    /// A question is no longer open.
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
